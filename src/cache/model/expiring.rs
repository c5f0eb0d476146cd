//! Which rows go at this moment because of time.
//!
//! Set around the statement of a sweep, read where a change of a row is noted: an entry that has expired
//! voids no lease, and watchers are told so. What triggers on the cache change meanwhile, there or elsewhere, and what goes
//! along by a foreign key, does not go because of time.

use std::cell::Cell;

use pgrx::pg_sys::Oid;

use crate::pg::events::NotedBy;
use crate::pg::hooks::trigger;

/// The sweep of a table, and how deep in triggers its statement runs.
#[derive(Clone, Copy)]
struct Swept {
    relation: Oid,
    depth: i32,
}

thread_local! {
    static SWEEPING: Cell<Option<Swept>> = const { Cell::new(None) };
}

/// Rows that the next statement removes from a table have expired. An error that unwinds drops it, too.
pub struct Sweeping(Option<Swept>);

impl Sweeping {
    pub fn begin(relation: Oid) -> Sweeping {
        let depth = trigger::depth();
        Sweeping(SWEEPING.replace(Some(Swept { relation, depth })))
    }

    pub fn is_on() -> bool {
        SWEEPING.get().is_some()
    }

    /// Whether a row that is gone was removed by the statement of a sweep itself.
    pub fn removes(relation: Oid, noted_by: NotedBy) -> bool {
        SWEEPING.get().is_some_and(|swept| {
            noted_by == NotedBy::Trigger
                && swept.relation == relation
                && trigger::depth() == swept.depth + 1
        })
    }
}

impl Drop for Sweeping {
    fn drop(&mut self) {
        SWEEPING.set(self.0);
    }
}
