//! The entries of a table, as commands use them.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::cache::entries::table::Rows;
use crate::cache::open;
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::session::{clock, transaction};
use crate::resp::auth::target::Target;
use crate::resp::commands::call::Call;
use crate::resp::commands::error::{CommandError, Done};
use crate::resp::commands::served::Served;
use crate::resp::executor::tables::table::{Table, surprise};

/// Prepares a command on a table at this moment.
pub fn call(table: &Table) -> Call<'_, Rows<'_>> {
    Call::on(&table.target, table.rows(), clock::now())
}

impl Served for Rows<'_> {
    const PIECE: usize = u32::MAX as usize;

    fn admits<'a>(target: &Target, privileges: Privileges) -> Done<'a> {
        if privileges != Privileges::READ && !transaction::is_writable() {
            return Err(CommandError::ReadOnly);
        }
        if privileges.has(Privileges::INSERT) {
            target.cache.check_writable().map_err(CommandError::from)?;
        }
        Ok(())
    }

    /// Takes the lock that lasts until the end of the transaction, at its first change. Checks the privileges again,
    /// because the session that held the lock may have revoked them. If the cache has received user-defined triggers or
    /// policies meanwhile, the transaction ends here: it does not have the settings for those, and may be run again.
    fn open<'a>(&self, privileges: Privileges) -> Done<'a> {
        if self.opened().is_some() {
            return Ok(());
        }
        let relation = self.cache.relation;
        let cache = open::to_write(Some(relation), Privileges::NONE, c"a command")
            .map_err(CommandError::from)?;
        if !privilege::has(relation, privileges) {
            return Err(CommandError::NoRight);
        }
        if cache.runs_user_code() && !self.user_code {
            surprise();
            ErrorReport::new(
                PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
                "a trigger or policy was added to the table concurrently",
                "pgcache",
            )
            .report(PgLogLevel::ERROR);
        }
        self.set_opened(cache);
        Ok(())
    }

    fn is_partial(_: &Target) -> bool {
        false
    }
}
