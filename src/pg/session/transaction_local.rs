//! State of a session that belongs to its transaction, and whether any of it was changed.
//!
//! Guards that the end of a transaction forgets no such state: a [`TransactionLocal`] can be
//! changed in one way only, which notes that something was. A transaction that has changed none, as
//! most that only read, ends without a look at each of them.
//!
//! And that it can be asked at the end: nothing interrupts who looks at it or changes it. A process
//! that is terminated runs its abort on top of what it was doing. It would find the state borrowed,
//! fail, and leave its locks and marks behind.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use super::uninterrupted;

thread_local! {
    static CHANGED: Cell<bool> = const { Cell::new(false) };
}

/// A state that ends with the transaction, or is changed by the end of a savepoint. Never dropped.
#[derive(Default)]
pub struct TransactionLocal<T>(ManuallyDrop<RefCell<T>>);

impl<T> TransactionLocal<T> {
    /// Reads the state.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        uninterrupted(|| look(&self.0.borrow()))
    }

    /// Changes the state, and notes that something was changed.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        CHANGED.set(true);
        uninterrupted(|| change(&mut self.0.borrow_mut()))
    }
}

/// Whether any such state was changed since the last transaction ended.
#[inline]
pub fn any_changed() -> bool {
    CHANGED.get()
}

/// The transaction has ended, and every such state has been set back.
pub fn all_ended() {
    CHANGED.set(false);
}
