//! A table cache as a transaction of a back finds it.

use std::cell::OnceCell;
use std::rc::Rc;

use pgrx::PgLogLevel;
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;

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
}

impl Table {
    /// Takes no lock that stays.
    pub fn open(relation: Oid) -> Result<Table, Refusal<'static>> {
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
        })
    }

    /// Whether a command on it may run code that is not ours, as far as is known now.
    pub fn runs_others_code(&self) -> bool {
        let cache = self.changed.get().unwrap_or(&self.target.cache);
        cache.runs_others_code()
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
