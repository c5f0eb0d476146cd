//! Holds state of a session that belongs to its transaction, and a flag that says whether any of this state has
//! changed.
//!
//! The end of a transaction must reset all this state. The only method that changes a [`TransactionLocal`] also sets
//! the flag. If the flag is not set, as after most transactions that only read, the end need not check each state.
//!
//! The end of a transaction must also be able to read the state. A terminated process runs its abort on top of the
//! interrupted code. If that code had the state borrowed, the abort would fail and leave locks and marks behind. So
//! nothing interrupts a read or a change of the state.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use super::uninterrupted;

thread_local! {
    static CHANGED: Cell<bool> = const { Cell::new(false) };
}

/// State that ends with the transaction, or changes at the end of a savepoint. Never dropped.
#[derive(Default)]
pub struct TransactionLocal<T>(ManuallyDrop<RefCell<T>>);

impl<T> TransactionLocal<T> {
    /// Reads the state.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        uninterrupted(|| look(&self.0.borrow()))
    }

    /// Changes the state, and sets the flag.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        CHANGED.set(true);
        uninterrupted(|| change(&mut self.0.borrow_mut()))
    }
}

/// Returns whether any [`TransactionLocal`] has changed since the last transaction ended.
#[inline]
pub fn any_changed() -> bool {
    CHANGED.get()
}

/// Records that the transaction has ended and every [`TransactionLocal`] is reset.
pub fn all_ended() {
    CHANGED.set(false);
}
