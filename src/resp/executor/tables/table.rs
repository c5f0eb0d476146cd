//! A table cache, as a transaction of an executor sees it.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Cache};
use crate::cache::entries::table::Rows;
use crate::pg::catalog::privilege;
use crate::pg::session::{self, lock};
use crate::resp::auth::target::Target;
use crate::resp::commands::error::CommandError;

/// A table cache in one transaction.
pub struct Table {
    pub target: Target,
    /// The cache under the lock that lasts; set at the first change.
    pub changed: OnceCell<Rc<Cache>>,
    /// Whether the transaction may run user-defined code.
    alone: bool,
}

thread_local! {
    static SURPRISED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a change was given up since the last call, because it would have run user-defined code that was
/// unknown when it began.
pub fn take_surprise() -> bool {
    SURPRISED.take()
}

/// Notes that a change was given up because of user-defined code.
pub fn surprise() {
    SURPRISED.set(true);
}

impl Table {
    /// Opens a table without a lasting lock.
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

    /// Returns whether a command may have run user-defined code, which may have been added while the command waited for
    /// a lock.
    pub fn has_run_user_code(&self) -> bool {
        let now = registry::remembered(self.relation());
        self.runs_user_code() || now.is_none_or(|cache| cache.runs_user_code())
    }

    pub fn rows(&self) -> Rows<'_> {
        Rows::open_later(&self.target.cache, &self.changed, self.alone)
    }

    pub fn relation(&self) -> Oid {
        self.target.cache.relation
    }
}
