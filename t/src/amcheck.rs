//! Checks the pages of a table with Postgres' amcheck. On a server without contrib the check is skipped, which `make
//! test` reports at its end.

use postgres::Client;

use crate::ask::Ask;

pub trait Amcheck {
    /// Installs amcheck in the database, if the server has it.
    fn add_amcheck(&mut self);

    /// Checks that the btree indexes and the table agree: every index entry has its row, every row has its index
    /// entries, and no page is corrupt.
    fn pages_are_sound(&mut self, table: &str, case: &str);
}

impl Amcheck for Client {
    fn add_amcheck(&mut self) {
        if is_there(self) {
            self.run("CREATE EXTENSION amcheck");
        }
    }

    fn pages_are_sound(&mut self, table: &str, case: &str) {
        if !is_there(self) {
            return;
        }
        self.run(&format!(
            "SELECT bt_index_check(indexrelid, true) FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid
             WHERE indrelid = '{table}'::regclass AND indisvalid AND relam = (SELECT oid FROM pg_am WHERE amname = 'btree')"
        ));
        let broken = self.lines(&format!("SELECT * FROM verify_heapam('{table}')"));
        assert_eq!(broken, Vec::<String>::new(), "{table}{case}");
    }
}

fn is_there(session: &mut Client) -> bool {
    session.holds("SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'amcheck')")
}
