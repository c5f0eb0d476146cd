//! Loads the C modules of `t/native/`, which bring a server into states that SQL cannot reach. scripts/stage.sh builds
//! and installs them.

use postgres::Client;

use crate::ask::Ask;
use crate::cluster::Cluster;

/// Preloads pgcache and an extension that writes when a transaction ends, in both orders: Postgres calls the extension
/// that was loaded last first.
pub const BESIDE_A_WRITER: [&str; 2] = [
    "shared_preload_libraries = 'pgcache, pgcache_writer'",
    "shared_preload_libraries = 'pgcache_writer, pgcache'",
];

impl Cluster {
    /// Creates the function that [`reuse`] calls, and returns a session in the database.
    pub fn counting_oids(&self, database: &str) -> Client {
        let mut session = self.connect(database);
        session.run(
            "CREATE FUNCTION set_next_oid(oid) RETURNS void LANGUAGE c AS 'pgcache_oids', 'set_next_oid'",
        );
        session
    }
}

/// Creates a relation that gets the OID of a dropped relation.
pub fn reuse(session: &mut Client, oid: i64, create: &str) {
    // Postgres does not reuse an OID while a dead row of pg_class or the file of a dropped table still has it.
    session.run("VACUUM pg_class");
    session.run("CHECKPOINT");
    session.run(&format!("SELECT set_next_oid({oid})"));
    session.run(create);
}
