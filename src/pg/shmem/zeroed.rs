//! Allocates zeroed pieces of shared memory, one for each owning module. Requests the pieces while the library is
//! preloaded, and passes each piece to its owner at every start of the server.
//!
//! The hot tier's memory is not one of the pieces, because it needs its own layout and the system may refuse it.

use std::cell::RefCell;
use std::ffi::CStr;
use std::ptr::NonNull;

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::pg::version::ADDIN_SHMEM_INIT_LOCK;

/// The size of a cache line. Each piece begins at a multiple of it, so its atomics are aligned.
pub const LINE: usize = 64;

/// A piece, as its owner describes it.
pub struct Piece {
    /// The name in `pg_shmem_allocations`.
    pub name: &'static CStr,
    pub bytes: usize,
    /// Further bytes, which the owner writes before it reads them. They are not zeroed here, so the operating system
    /// does not allocate them before their first use.
    pub unmade: usize,
    /// Requests further resources, such as a lock, in the request hook.
    pub request: fn(),
    /// Receives the piece: zeroed at the start and after a crash, otherwise with its current content.
    pub given: fn(NonNull<u8>),
}

thread_local! {
    // The postmaster fills this before it forks; every process inherits it.
    static PIECES: RefCell<Vec<Piece>> = const { RefCell::new(Vec::new()) };
}

static mut FORMER_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut FORMER_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Requests a piece at the start of the server; the caller is preloading the library.
pub fn register(piece: Piece) {
    let is_first = PIECES.with_borrow_mut(|pieces| {
        pieces.push(piece);
        pieces.len() == 1
    });
    if is_first {
        // SAFETY: runs once in the postmaster, before any other process exists.
        unsafe {
            FORMER_REQUEST = pg_sys::shmem_request_hook;
            pg_sys::shmem_request_hook = Some(request);
            FORMER_STARTUP = pg_sys::shmem_startup_hook;
            pg_sys::shmem_startup_hook = Some(startup);
        }
    }
}

/// Returns the bytes of all requested pieces, alignment included.
pub fn total() -> usize {
    PIECES.with_borrow(|pieces| pieces.iter().map(room).sum())
}

/// Returns the bytes of a piece, alignment included.
fn room(piece: &Piece) -> usize {
    piece.bytes + piece.unmade + LINE
}

#[pg_guard]
unsafe extern "C-unwind" fn request() {
    // SAFETY: the former hook is called as Postgres would have called it.
    unsafe {
        if let Some(former) = FORMER_REQUEST {
            former();
        }
    }
    PIECES.with_borrow(|pieces| {
        for piece in pieces {
            // SAFETY: this is the hook that may request shared memory.
            unsafe { pg_sys::RequestAddinShmemSpace(room(piece)) };
            (piece.request)();
        }
    });
}

/// Passes each piece to its module. Runs at each start, also after a crash, and finds new memory each time.
#[pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: the former hook is called as Postgres would have called it.
    unsafe {
        if let Some(former) = FORMER_STARTUP {
            former();
        }
    }
    PIECES.with_borrow(|pieces| pieces.iter().for_each(take));
}

fn take(piece: &Piece) {
    let mut found = false;
    // SAFETY: the startup hook calls this. The requested bytes suffice; the first process to attach, which the lock
    // determines, zeroes `bytes` and the alignment. The aligned piece is within the requested bytes.
    unsafe {
        let lock = &raw mut (*pg_sys::MainLWLockArray.add(ADDIN_SHMEM_INIT_LOCK)).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let memory: *mut u8 =
            pg_sys::ShmemInitStruct(piece.name.as_ptr(), room(piece), &mut found).cast();
        if !found {
            memory.write_bytes(0, piece.bytes + LINE);
        }
        if let Some(aligned) = NonNull::new(memory.add(memory.align_offset(LINE))) {
            (piece.given)(aligned);
        }
        pg_sys::LWLockRelease(lock);
    }
}
