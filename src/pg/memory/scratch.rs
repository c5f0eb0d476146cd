//! A memory context for one step of a loop, reset before the next step, so that the loop's memory does not grow.

use pgrx::pg_sys;

/// A memory context that lives as long as the process.
pub struct Scratch(pg_sys::MemoryContext);

impl Scratch {
    /// Creates the context. Called once in a process.
    pub fn new() -> Scratch {
        // SAFETY: the parent lives as long as the process; the name is static.
        Scratch(unsafe {
            pg_sys::AllocSetContextCreateInternal(
                pg_sys::TopMemoryContext,
                c"pgcache step".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            )
        })
    }

    /// Runs `work`, whose Postgres allocations go to this context. The caller must not use them afterwards: the next
    /// step frees them, together with allocations that an error left behind.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: the context lives as long as the process, and the caller's lives through this call; after an error
        // the abort sets another context.
        unsafe {
            pg_sys::MemoryContextReset(self.0);
            let former = pg_sys::MemoryContextSwitchTo(self.0);
            let result = work();
            pg_sys::MemoryContextSwitchTo(former);
            result
        }
    }
}
