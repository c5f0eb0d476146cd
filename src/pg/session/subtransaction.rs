//! Runs work in a subtransaction, so that it may fail or be undone without ending the transaction.

use std::panic::AssertUnwindSafe;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::failure::{Failure, forget_original, raise_copy};

/// Runs `work` in a subtransaction, so that an error undoes only the changes of `work`.
pub fn attempt<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    let nested = Nested::begin();
    let done = PgTryBuilder::new(AssertUnwindSafe(|| Ok(work())))
        .catch_others(|error| Err(Failure::of(error)))
        .execute();
    nested.end(done.is_ok());
    done
}

/// Runs `work` in a subtransaction, and commits it if `keep` returns true for the result; otherwise rolls it back.
/// Returns the result in both cases. A serialization failure rolls it back and returns None; any other error rolls it
/// back and is raised again.
pub fn keep_if<R>(work: impl FnOnce() -> R, keep: impl FnOnce(&R) -> bool) -> Option<R> {
    let nested = Nested::begin();
    let result = PgTryBuilder::new(AssertUnwindSafe(|| Some(work())))
        .catch_when(PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE, |_| None)
        .catch_others(|error| {
            forget_original();
            nested.end(false);
            raise_copy(error)
        })
        .execute();
    nested.end(result.as_ref().is_some_and(keep));
    result
}

/// A subtransaction, and the state at its beginning.
#[derive(Clone, Copy)]
struct Nested {
    context: pg_sys::MemoryContext,
    owner: pg_sys::ResourceOwner,
    /// The list of error context callbacks at the beginning. After an error, the list may point to a callback in
    /// memory that ends with the subtransaction.
    callbacks: *mut pg_sys::ErrorContextCallback,
}

impl Nested {
    fn begin() -> Nested {
        // SAFETY: a function call is always inside a transaction. Results stay in the caller's memory context, which
        // becomes current again.
        unsafe {
            let nested = Nested {
                context: pg_sys::CurrentMemoryContext,
                owner: pg_sys::CurrentResourceOwner,
                callbacks: pg_sys::error_context_stack,
            };
            pg_sys::BeginInternalSubTransaction(std::ptr::null());
            pg_sys::MemoryContextSwitchTo(nested.context);
            nested
        }
    }

    fn end(self, keep: bool) {
        // SAFETY: the code calls this once; the subtransaction is the innermost, because code inside ends its own
        // subtransactions. The context and the owner are the caller's and outlive the subtransaction.
        unsafe {
            pg_sys::MemoryContextSwitchTo(self.context); // after an error another context is current
            pg_sys::error_context_stack = self.callbacks;
            match keep {
                true => pg_sys::ReleaseCurrentSubTransaction(),
                false => pg_sys::RollbackAndReleaseCurrentSubTransaction(),
            }
            pg_sys::MemoryContextSwitchTo(self.context);
            pg_sys::CurrentResourceOwner = self.owner;
        }
    }
}
