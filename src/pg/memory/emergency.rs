//! A memory reserve that lets each process report that it is out of memory.
//!
//! Without the reserve, running out of memory could stop the server in two ways. First, a failed allocation in Rust
//! aborts the process, and Postgres restarts the whole server when a backend aborts. Second, pgrx copies a Postgres
//! error that passes through Rust, in the memory context of the failed code. If the copy fails, pgrx copies the new
//! error in the same context, and so on, until Postgres gives up with a PANIC.
//!
//! So each backend reserves a block that it does not use. It returns the block to the system as soon as a small Rust
//! allocation fails or Postgres reports "out of memory", and allocates the block again later. Allocations whose size
//! depends on a user do not rely on the reserve; they go through `pg::memory`, which raises an error itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

use crate::error::Error;
use crate::pg::encoding;

/// The emergency memory, 2 MB. It suffices, because after a failed allocation a memory context tries smaller blocks,
/// down to 1 MB.
const BLOCK: Layout = Layout::new::<[u64; 256 * 1024]>();
/// The size in bytes of the largest allocation that the reserve covers. A larger allocation goes through `pg::memory`,
/// which raises an error.
const SMALL: usize = 64 * 1024;

unsafe extern "C-unwind" {
    fn geterrcode() -> i32;
}

static BLOCK_AT: AtomicPtr<u8> = AtomicPtr::new(null_mut());

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The system's allocator. If a small allocation fails, it releases the emergency memory and tries again.
struct Allocator;

// SAFETY: the system allocator does all work; a retry passes the same arguments.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout, whose size is not 0, goes to the system's allocator unchanged.
        or_with_emergency_memory(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout, whose size is not 0, goes to the system's allocator unchanged.
        or_with_emergency_memory(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the memory comes from the system allocator, like all memory of this allocator, and has the caller's
        // layout. A failed attempt leaves the memory unchanged, so a second attempt is allowed.
        or_with_emergency_memory(size, || unsafe { System.realloc(at, layout, size) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the memory comes from the system allocator, like all memory of this allocator, has the caller's
        // layout, and is not used afterwards.
        unsafe { System.dealloc(at, layout) }
    }
}

fn or_with_emergency_memory(size: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let memory = allocate();
    if memory.is_null() && size <= SMALL && give_back() {
        return allocate();
    }
    memory
}

/// Returns the emergency memory to the system. Returns false if the process has already returned it.
pub fn give_back() -> bool {
    let block = BLOCK_AT.swap(null_mut(), Relaxed);
    if !block.is_null() {
        // SAFETY: `acquire` allocated the block with this layout, and the swap left no other pointer to it.
        unsafe { System.dealloc(block, BLOCK) };
    }
    !block.is_null()
}

/// Allocates the emergency memory, unless it exists. Returns whether it exists now.
pub fn acquire() -> bool {
    if BLOCK_AT.load(Relaxed).is_null() {
        // SAFETY: the layout has a size. No code writes to the block, so it costs address space only.
        BLOCK_AT.store(unsafe { System.alloc(BLOCK) }, Relaxed);
    }
    !BLOCK_AT.load(Relaxed).is_null()
}

/// pgcache's entry in Postgres' chain of error context callbacks. It is the last entry, and its callback runs for each
/// error before pgrx copies the error.
static mut LISTENER: pg_sys::ErrorContextCallback = pg_sys::ErrorContextCallback {
    previous: null_mut(),
    callback: Some(at_report),
    arg: null_mut(),
};

unsafe extern "C-unwind" fn at_report(_arg: *mut std::ffi::c_void) {
    // SAFETY: Postgres calls this in the middle of a report, the only time at which the error's code can be read.
    if unsafe { geterrcode() } == PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY as i32 {
        give_back();
    } else {
        encoding::keep_words();
    }
}

/// Ensures that the emergency memory exists and that an error releases it in time; raises 53200 if memory is lacking.
/// Each SQL function calls this at its start, before it holds anything that would have to be undone after an error.
#[inline]
pub fn secure() {
    // SAFETY: the code only compares the addresses of two variables of this process.
    let listens = unsafe { pg_sys::error_context_stack == &raw mut LISTENER };
    if !listens || BLOCK_AT.load(Relaxed).is_null() {
        secure_anew();
    }
}

/// Adds the entry at the end of the chain, and allocates the emergency memory. The other entries belong to running
/// functions, which remove them when they end, so that only this entry remains. An error that ends the transaction
/// empties the chain.
#[cold]
fn secure_anew() {
    // SAFETY: each link lives while it is in the chain, and the chain ends with NULL or with pgcache's entry.
    unsafe {
        let ours = &raw mut LISTENER;
        let mut link = &raw mut pg_sys::error_context_stack;
        while !(*link).is_null() && *link != ours {
            link = &raw mut (**link).previous;
        }
        *link = ours;
    }
    if !acquire() {
        exhausted(BLOCK.size());
    }
}

/// Raises 53200 for a failed allocation of this many bytes. pgrx copies the error's message into the current memory
/// context, and no code would catch a second error there. So this function first releases the emergency memory, and
/// makes ErrorContext current, which Postgres reserves for this case.
#[cold]
pub fn exhausted(size: usize) -> ! {
    give_back();
    // SAFETY: CurrentMemoryContext is a variable of this process, and ErrorContext exists in every backend; the code
    // that catches the error sets its own memory context.
    unsafe { pg_sys::CurrentMemoryContext = pg_sys::ErrorContext };
    loop {
        ErrorReport::from(Error::OutOfMemory(size)).report(PgLogLevel::ERROR); // does not return
    }
}
