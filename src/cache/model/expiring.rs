//! Records that the running statement is a sweep, so that the rows that it removes count as expired and not as
//! deleted.
//!
//! The trigger of a row reports the removal of the row but cannot know its cause. So this module keeps the cause while
//! the statement of a sweep runs:
//!
//! - `expiry::pass` sets the cause for the time of its statement.
//! - Code that notes a change of a row reads the cause, in the same session. The observer notifies watchers of "expire"
//!   instead of "delete". The observer voids no lease, because a value that is being computed is not out of date.
//!   `expiry::vacuum_need` counts no dead bytes, because a VACUUM follows the sweep anyway.
//!
//! Rows that triggers on the cache remove while the statement runs, in this table or elsewhere, do not count as
//! expired, and neither do rows that a foreign key removes.

use std::cell::Cell;

use pgrx::pg_sys::Oid;

use crate::pg::events::NotedBy;
use crate::pg::hooks::trigger;

/// The table that is being swept, and the trigger depth of the sweep's statement.
#[derive(Clone, Copy)]
struct Swept {
    relation: Oid,
    depth: i32,
}

thread_local! {
    static SWEPT: Cell<Option<Swept>> = const { Cell::new(None) };
}

/// Marks the rows that the sweep's statement removes as expired while this value lives. The mark also ends if an error
/// unwinds.
pub struct Expiring(Option<Swept>);

impl Expiring {
    pub fn begin(relation: Oid) -> Expiring {
        let depth = trigger::depth();
        Expiring(SWEPT.replace(Some(Swept { relation, depth })))
    }

    pub fn is_on() -> bool {
        SWEPT.get().is_some()
    }

    /// Returns whether the sweep's statement itself removed a row of this table.
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
