//! Whether rows that go at this moment go because of time.
//!
//! A row's trigger reports that the row is gone, and cannot know why: so the cause stands here
//! while the statement runs.
//!
//! - Set by the statements of a sweep: `expiry::pass` for tables, `memory::ops` for memory caches
//!   whose changes are told one by one.
//! - Read where a change of a row is noted, in the same session: `commit::notify` says "expire"
//!   instead of "delete"; `commit::changes` voids no lease, because what is being computed is not
//!   out of date; `expiry::vacuum_need` counts no dead bytes, because a VACUUM follows the sweep
//!   anyway.

use std::cell::Cell;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
}

/// Rows that go while this lives have expired. An error that unwinds drops it, too.
pub struct Expiring(());

impl Expiring {
    pub fn begin() -> Expiring {
        IS_ON.set(true);
        Expiring(())
    }

    pub fn is_on() -> bool {
        IS_ON.get()
    }
}

impl Drop for Expiring {
    fn drop(&mut self) {
        IS_ON.set(false);
    }
}
