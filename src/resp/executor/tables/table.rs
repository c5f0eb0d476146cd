//! A table cache as a transaction of an executor finds it.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Cache};
use crate::cache::entries::table::Rows;
use crate::pg::catalog::privilege;
use crate::pg::session::{self, lock};
use crate::resp::auth::target::Target;
use crate::resp::commands::error::CommandError;

/// A table cache, in one transaction.
pub struct Table {
    pub target: Target,
    /// From the first change on: the cache under the lock that stays.
    pub changed: OnceCell<Rc<Cache>>,
    /// user-defined code may run: the transaction is one for that.
    alone: bool,
}

thread_local! {
    static SURPRISED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a change was given up since this was asked last, because it would have run user-defined code that
/// nobody knew of when it began.
pub fn take_surprise() -> bool {
    SURPRISED.take()
}

/// Notes that.
pub fn surprise() {
    SURPRISED.set(true);
}

impl Table {
    /// Takes no lock that stays.
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

    /// Whether a command on it may run code that is not ours, as far as is known now.
    pub fn runs_user_code(&self) -> bool {
        let cache = self.changed.get().unwrap_or(&self.target.cache);
        cache.runs_user_code()
    }

    /// Whether one may have, since it may have come to while a lock was waited for.
    pub fn has_run_user_code(&self) -> bool {
        let now = registry::remembered(self.relation());
        self.runs_user_code() || now.is_none_or(|cache| cache.runs_user_code())
    }

    /// Its entries.
    pub fn rows(&self) -> Rows<'_> {
        Rows::open_later(&self.target.cache, &self.changed, self.alone)
    }

    pub fn relation(&self) -> Oid {
        self.target.cache.relation
    }
}
