//! Something that is done, looked at, and kept or undone: a subtransaction.

use std::panic::AssertUnwindSafe;

use pgrx::pg_sys;
use pgrx::prelude::*;

/// Runs in a subtransaction, which stays if `keep` says so of the result. A serialization failure
/// undoes it and gives None; other errors undo it and go on.
pub fn attempt<R>(run: impl FnOnce() -> R, keep: impl FnOnce(&R) -> bool) -> Option<R> {
    let nested = Nested::begin();
    let result = PgTryBuilder::new(AssertUnwindSafe(|| Some(run())))
        .catch_when(PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE, |_| None)
        .catch_others(|error| {
            nested.end(false);
            error.rethrow()
        })
        .execute();
    nested.end(result.as_ref().is_some_and(keep));
    result
}

/// A subtransaction, and what was current when it began.
#[derive(Clone, Copy)]
struct Nested {
    context: pg_sys::MemoryContext,
    owner: pg_sys::ResourceOwner,
}

impl Nested {
    fn begin() -> Nested {
        // SAFETY: a function call is always inside a transaction. Results stay in the caller's
        // memory context, which becomes current again.
        unsafe {
            let nested = Nested {
                context: pg_sys::CurrentMemoryContext,
                owner: pg_sys::CurrentResourceOwner,
            };
            pg_sys::BeginInternalSubTransaction(std::ptr::null());
            pg_sys::MemoryContextSwitchTo(nested.context);
            nested
        }
    }

    fn end(self, keep: bool) {
        // SAFETY: called once; the subtransaction is the innermost, because what runs inside ends its
        // own. The context and the owner are the caller's and outlive it.
        unsafe {
            match keep {
                true => pg_sys::ReleaseCurrentSubTransaction(),
                false => pg_sys::RollbackAndReleaseCurrentSubTransaction(),
            }
            pg_sys::MemoryContextSwitchTo(self.context);
            pg_sys::CurrentResourceOwner = self.owner;
        }
    }
}
