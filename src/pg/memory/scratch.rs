//! Memory for one step of a loop, freed after it.

use pgrx::pg_sys;

/// A memory context of the process.
pub struct Scratch(pg_sys::MemoryContext);

impl Scratch {
    /// Makes the context, once in a process, where it stays until the end.
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

    /// Runs `work`, which allocates here; no such allocation may leave it. The next step frees memory that an error
    /// has left.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: the context lives as long as the process, and the caller's lives through this call; after an error
        // the abort sets another one.
        unsafe {
            pg_sys::MemoryContextReset(self.0);
            let former = pg_sys::MemoryContextSwitchTo(self.0);
            let result = work();
            pg_sys::MemoryContextSwitchTo(former);
            result
        }
    }
}
