//! Which rows go at this moment because of time.
//!
//! A row's trigger reports that the row is gone, and cannot know why: so the cause stands here
//! while the statement of a sweep runs.
//!
//! - Set by `expiry::pass`, around its statement.
//! - Read where a change of a row is noted, in the same session: by the observer, for which
//!   watchers are told "expire" instead of "delete", and no lease is voided, because what is being
//!   computed is not out of date; and by `expiry::vacuum_need`, which counts no dead bytes, because
//!   a VACUUM follows the sweep anyway.
//!
//! What triggers on the cache change meanwhile, there or elsewhere, and what goes along by a
//! foreign key, does not go because of time.

use std::cell::Cell;

use pgrx::pg_sys::Oid;

use crate::pg::events::NotedBy;
use crate::pg::hooks::trigger;

/// The table that is swept, and how deep in triggers the sweep's statement runs.
#[derive(Clone, Copy)]
struct Swept {
    relation: Oid,
    depth: i32,
}

thread_local! {
    static SWEPT: Cell<Option<Swept>> = const { Cell::new(None) };
}

/// Rows that the next statement removes from a table have expired. An error that unwinds drops it,
/// too.
pub struct Expiring(Option<Swept>);

impl Expiring {
    pub fn begin(relation: Oid) -> Expiring {
        let depth = trigger::depth();
        Expiring(SWEPT.replace(Some(Swept { relation, depth })))
    }

    pub fn is_on() -> bool {
        SWEPT.get().is_some()
    }

    /// Whether a row that is gone was removed by the statement of a sweep itself.
    pub fn removes(relation: Oid, noted_by: NotedBy) -> bool {
        SWEPT.get().is_some_and(|swept| {
            noted_by == NotedBy::Trigger
                && swept.relation == relation
                && trigger::depth() == swept.depth + 1
        })
    }
}

impl Drop for Expiring {
    fn drop(&mut self) {
        SWEPT.set(self.0);
    }
}
