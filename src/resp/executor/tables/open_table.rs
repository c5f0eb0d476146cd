//! A table cache in a transaction of an executor, and its entries as commands use them.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::cache::catalog::registry::{self, Cache};
use crate::cache::entries::table::Rows;
use crate::cache::open;
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::session::{self, clock, lock, transaction};
use crate::resp::auth::command_target::Target;
use crate::resp::commands::command_error::{CommandError, Done};
use crate::resp::commands::entry_access::Call;
use crate::resp::commands::served::Served;

/// A table cache in one transaction.
pub struct Table {
    pub target: Target,
    /// The cache, as read under the lock that the transaction keeps until its end. Set at the first change.
    pub changed: OnceCell<Rc<Cache>>,
    /// Whether the transaction may run user-defined code.
    alone: bool,
}

thread_local! {
    static SURPRISED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a change was abandoned since the last call, because the change would have run user-defined code that
/// was unknown when the transaction began.
pub fn take_surprise() -> bool {
    SURPRISED.take()
}

impl Table {
    /// Opens a table without a lock that lasts until the end of the transaction.
    pub fn open(relation: Oid, alone: bool) -> Result<Table, CommandError<'static>> {
        let cache = match registry::remembered(relation) {
            Some(cache) => cache,
            None => {
                let _lock = lock::Shared::on(relation);
                registry::find(relation).map_err(CommandError::from)?
            }
        };
        let privileges = privilege::of_role(relation, session::user());
        Ok(Table {
            target: Target { cache, privileges },
            changed: OnceCell::new(),
            alone,
        })
    }

    /// Returns whether a command on the table may run user-defined code, as far as is known now.
    pub fn runs_user_code(&self) -> bool {
        let cache = self.changed.get().unwrap_or(&self.target.cache);
        cache.runs_user_code()
    }

    /// Returns whether a finished command may have run user-defined code, including code that was added while the
    /// command waited for a lock.
    pub fn has_run_user_code(&self) -> bool {
        let now = registry::remembered(self.relation());
        self.runs_user_code() || now.is_none_or(|cache| cache.runs_user_code())
    }

    /// Prepares a command on the table at this moment.
    pub fn call(&self) -> Call<'_, Rows<'_>> {
        Call::on(&self.target, self.rows(), clock::now())
    }

    pub fn rows(&self) -> Rows<'_> {
        Rows::open_later(&self.target.cache, &self.changed, self.alone)
    }

    pub fn relation(&self) -> Oid {
        self.target.cache.relation
    }
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
    /// policies during the wait, the transaction ends here with an error: it lacks the settings that user-defined code
    /// needs. The command may then run again in a transaction with these settings.
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
            SURPRISED.set(true);
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
