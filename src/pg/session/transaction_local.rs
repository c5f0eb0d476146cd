//! What a session keeps of its transaction, and whether there is any of it.
//!
//! Guards that nobody is forgotten at the end of a transaction: what is [`Kept`] can be changed in one way
//! only, and that way says so to `pg::events`. A transaction in which nothing was changed, as most are
//! that only read, ends without asking each of them.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

thread_local! {
    static CHANGED: Cell<bool> = const { Cell::new(false) };
}

/// A state that the end of the transaction, or of a savepoint, has something to do with. Never dropped.
#[derive(Default)]
pub struct Kept<T>(ManuallyDrop<RefCell<T>>);

impl<T> Kept<T> {
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.0.borrow())
    }

    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        CHANGED.set(true);
        change(&mut self.0.borrow_mut())
    }
}

/// Whether anything was changed since the last transaction ended.
#[inline]
pub fn any() -> bool {
    CHANGED.get()
}

/// The transaction has ended, and all have put away what they kept of it.
pub fn none_left() {
    CHANGED.set(false);
}
