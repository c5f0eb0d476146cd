//! Whether rows that go at this moment go because of time.
//!
//! Set around the statements of a sweep, read where a change of a row is noted: an entry that has expired
//! voids no lease, and watchers are told so.

use std::cell::Cell;

thread_local! {
    static EXPIRING: Cell<bool> = const { Cell::new(false) };
}

/// Rows that go while this lives have expired. An error that unwinds drops it, too.
pub struct Expiring(());

impl Expiring {
    pub fn begin() -> Expiring {
        EXPIRING.set(true);
        Expiring(())
    }

    pub fn is_on() -> bool {
        EXPIRING.get()
    }
}

impl Drop for Expiring {
    fn drop(&mut self) {
        EXPIRING.set(false);
    }
}
