//! Whether rows that go at this moment go because of time.
//!
//! Set around the statements of a sweep, read where a change of a row is noted: an entry that has expired
//! voids no lease, and watchers are told so.

use std::cell::Cell;

thread_local! {
    static SWEEPING: Cell<bool> = const { Cell::new(false) };
}

/// Rows that go while this lives have expired. An error that unwinds drops it, too.
pub struct Sweeping(());

impl Sweeping {
    pub fn begin() -> Sweeping {
        SWEEPING.set(true);
        Sweeping(())
    }

    pub fn is_on() -> bool {
        SWEEPING.get()
    }
}

impl Drop for Sweeping {
    fn drop(&mut self) {
        SWEEPING.set(false);
    }
}
