//! A memory reserve of each process, from which it reports that it is out of memory.
//!
//! Without it, running out of memory would stop the server in two ways. An allocation that fails in Rust aborts the
//! process, and Postgres restarts the whole server when a backend aborts. And an error of Postgres that passes
//! through Rust is copied on its way, in the memory context of the failed code; if that copy fails, it raises an
//! error in the same place again, until Postgres gives up with a PANIC.
//!
//! So each backend reserves a block that it does not use. It returns the block to the system as soon as a small
//! allocation of Rust fails or Postgres reports "out of memory", and allocates it again later. Allocations whose
//! size a user decides do not rely on it: they go through `pg::memory`, which raises an error by itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

use crate::error::Error;
use crate::pg::encoding;

/// The emergency memory, 2 MB: a memory context requests blocks of at most 1 MB once larger ones are refused.
const BLOCK: Layout = Layout::new::<[u64; 256 * 1024]>();
/// The size in bytes of the largest allocation that the reserve covers. A larger one goes through `pg::memory`,
/// which raises an error.
const SMALL: usize = 64 * 1024;

unsafe extern "C-unwind" {
    fn geterrcode() -> i32;
}

static BLOCK_AT: AtomicPtr<u8> = AtomicPtr::new(null_mut());

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The system's allocator, with the emergency memory behind it.
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
        // SAFETY: the memory is the system allocator's, as all memory from this allocator, with the caller's layout.
        // A failed attempt leaves it unchanged, so a second one is allowed.
        or_with_emergency_memory(size, || unsafe { System.realloc(at, layout, size) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the memory is the system allocator's, as all memory from this allocator, with the caller's layout,
        // and is not used afterwards.
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

/// Returns the emergency memory to the system. Returns false if that was done already.
pub fn give_back() -> bool {
    let block = BLOCK_AT.swap(null_mut(), Relaxed);
    if !block.is_null() {
        // SAFETY: allocated in `acquire` with this layout, and no other code has it any more.
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

/// Our entry in Postgres' chain of error context callbacks. It is the last one, and runs for each error before the
/// error is copied.
static mut LISTENER: pg_sys::ErrorContextCallback = pg_sys::ErrorContextCallback {
    previous: null_mut(),
    callback: Some(at_report),
    arg: null_mut(),
};

unsafe extern "C-unwind" fn at_report(_arg: *mut std::ffi::c_void) {
    // SAFETY: Postgres calls this in the middle of a report, the only place where its code can be read.
    if unsafe { geterrcode() } == PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY as i32 {
        give_back();
    } else {
        encoding::keep_words();
    }
}

/// Makes sure that the emergency memory exists and would be released in time; otherwise raises 53200. Called at the
/// start of each function, before the function holds anything that an error would have to undo.
#[inline]
pub fn secure() {
    // SAFETY: both are variables of this process, which are only compared.
    let listens = unsafe { pg_sys::error_context_stack == &raw mut LISTENER };
    if !listens || BLOCK_AT.load(Relaxed).is_null() {
        secure_anew();
    }
}

/// Adds our entry to the chain. The other entries belong to functions that are running; each removes its own at its
/// end, so ours remains as the only one. An error that ends the transaction empties the chain.
#[cold]
fn secure_anew() {
    // SAFETY: the links are alive as long as they are in the chain, and end with NULL or with ours.
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

/// Raises 53200 for an allocation of this many bytes. The error's message is copied in the current memory context,
/// where a second error would not be caught. So the emergency memory is released first, and the current context
/// becomes ErrorContext, which Postgres reserves for this case.
#[cold]
pub fn exhausted(size: usize) -> ! {
    give_back();
    // SAFETY: both are variables of this process, and ErrorContext exists in every backend; the code that catches the
    // error sets a memory context of its own.
    unsafe { pg_sys::CurrentMemoryContext = pg_sys::ErrorContext };
    loop {
        ErrorReport::from(Error::OutOfMemory(size)).report(PgLogLevel::ERROR); // does not return
    }
}
