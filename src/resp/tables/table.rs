//! A table cache as a transaction of a back finds it.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::cache::catalog::registry::{self, Cache};
use crate::error::Error;
use crate::pg::catalog::privilege;
use crate::pg::session::{self, lock};
use crate::resp::commands::refusal::Refusal;
use crate::resp::target::{Rights, Target};

/// A table cache, in one transaction.
pub struct Table {
    pub target: Target,
    /// From the first change on: the cache under the lock that stays.
    pub changed: OnceCell<Rc<Cache>>,
    /// Hits from copies that no command has counted yet.
    pub hot_hits: Cell<u64>,
    /// Others' code may run: the transaction is one for that.
    alone: bool,
}

thread_local! {
    static SURPRISED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a change was given up since this was asked last, because it would have run code of others that
/// nobody knew of when it began.
pub fn take_surprise() -> bool {
    SURPRISED.take()
}

impl Table {
    /// Takes no lock that stays.
    pub fn open(relation: Oid, alone: bool) -> Result<Table, Refusal<'static>> {
        let cache = match registry::remembered(relation) {
            Some(cache) => cache,
            None => {
                let _lock = lock::Shared::on(relation);
                registry::find(relation).map_err(refused)?
            }
        };
        let rights = Rights::of(privilege::of_role(relation, session::user()));
        Ok(Table {
            target: Target { cache, rights },
            changed: OnceCell::new(),
            hot_hits: Cell::new(0),
            alone,
        })
    }

    /// Whether a command on it may run code that is not ours, as far as is known now.
    pub fn runs_others_code(&self) -> bool {
        let cache = self.changed.get().unwrap_or(&self.target.cache);
        cache.runs_others_code()
    }

    /// Whether one may have, since it may have come to while a lock was waited for.
    pub fn has_run_others_code(&self) -> bool {
        let now = registry::remembered(self.relation());
        self.runs_others_code() || now.is_none_or(|cache| cache.runs_others_code())
    }

    /// The cache under the lock that stays. Where it has come to run others' code while that was waited for,
    /// the transaction ends here: it has not the settings for that, and may be run again.
    pub fn set_changed(&self, cache: Rc<Cache>) {
        if cache.runs_others_code() && !self.alone {
            SURPRISED.set(true);
            ErrorReport::new(
                PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
                "a trigger or policy was added to the table concurrently",
                "pgcache",
            )
            .report(PgLogLevel::ERROR);
        }
        let _ = self.changed.set(cache);
    }

    pub fn relation(&self) -> Oid {
        self.target.cache.relation
    }
}

/// What becomes of an error of the entries' own code: of the client's doing, it is told; else it is
/// raised.
pub fn refused<'a>(error: Error) -> Refusal<'a> {
    match error {
        Error::NoSuchRelation(_) | Error::NotACache(_) => Refusal::Gone,
        Error::NotText => Refusal::NotText,
        Error::NotJson
        | Error::UnknownCharacter
        | Error::KeyBeyondColumn
        | Error::GeneratedColumns => Refusal::Own(Box::new(error)),
        _ => {
            ErrorReport::from(error).report(PgLogLevel::ERROR); // does not return
            Refusal::Gone
        }
    }
}
