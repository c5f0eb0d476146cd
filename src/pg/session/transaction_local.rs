//! State of a session that belongs to its transaction, and whether any of it has changed.
//!
//! Guards that the end of a transaction resets all such state: a [`TransactionLocal`] can be changed in one way only,
//! which notes the change. A transaction without changes, like most that only read, ends without checking each state.
//!
//! Also guards that the state is readable at the end: nothing interrupts a read or change of it. A terminated process
//! runs its abort on top of the interrupted code. It would find the state borrowed, fail, and leave its locks and
//! marks behind.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use super::uninterrupted;

thread_local! {
    static CHANGED: Cell<bool> = const { Cell::new(false) };
}

/// A state that ends with the transaction, or changes at the end of a savepoint. Never dropped.
#[derive(Default)]
pub struct TransactionLocal<T>(ManuallyDrop<RefCell<T>>);

impl<T> TransactionLocal<T> {
    /// Reads the state.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        uninterrupted(|| look(&self.0.borrow()))
    }

    /// Changes the state, and notes the change.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        CHANGED.set(true);
        uninterrupted(|| change(&mut self.0.borrow_mut()))
    }
}

/// Returns whether any such state was changed since the last transaction ended.
#[inline]
pub fn any_changed() -> bool {
    CHANGED.get()
}

/// Notes that the transaction has ended and every such state is reset.
pub fn all_ended() {
    CHANGED.set(false);
}
