//! Allocates memory for objects whose size depends on a user: values, rows, batches.
//!
//! Running out of memory must be an error of the statement (53200). An allocation that fails in Rust's own collections
//! instead aborts the process, and so restarts the server. So code allocates memory here if its size grows with an
//! argument or a table. `pg::memory::emergency` covers small allocations.

pub mod emergency;
pub mod pg_list;
pub mod scratch;
pub mod unguarded;

use std::ptr::NonNull;

pub use emergency::exhausted;

use pgrx::pg_sys;

/// Postgres' MaxAllocSize (utils/memutils.h): 1 GB less a byte.
const LARGEST: usize = 0x3FFF_FFFF;

unsafe extern "C-unwind" {
    // With the flag MCXT_ALLOC_NO_OOM, raises no error for a size up to MaxAllocSize, so it needs no pgrx guard.
    fn palloc_extended(size: pg_sys::Size, flags: i32) -> *mut std::ffi::c_void;
}

/// Allocates this many bytes in the current memory context, uninitialised; raises 53200 if memory runs out.
#[inline]
pub fn palloc(size: usize) -> NonNull<u8> {
    if size > LARGEST {
        exhausted(size);
    }
    // SAFETY: Postgres allows the size; the result is checked for NULL.
    let memory = unsafe { palloc_extended(size, pg_sys::MCXT_ALLOC_NO_OOM as i32) };
    NonNull::new(memory.cast()).unwrap_or_else(|| exhausted(size))
}

/// Makes an empty list with room for this many elements; raises 53200 if memory runs out.
pub fn list<T>(room: usize) -> Vec<T> {
    let mut list = Vec::new();
    if list.try_reserve_exact(room).is_err() {
        exhausted(room.saturating_mul(size_of::<T>()));
    }
    list
}

/// Appends to a list; raises 53200 if memory runs out.
pub fn push<T>(list: &mut Vec<T>, element: T) {
    if list.try_reserve(1).is_err() {
        exhausted(list.len().saturating_mul(2 * size_of::<T>()));
    }
    list.push(element);
}

/// Collects the elements of an iterator into a list; raises 53200 if memory runs out.
pub fn collect<T>(elements: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = list(elements.size_hint().0);
    for element in elements {
        push(&mut all, element);
    }
    all
}

/// Copies these bytes; raises 53200 if memory runs out.
pub fn copy(bytes: &[u8]) -> Vec<u8> {
    let mut copy = list(bytes.len());
    copy.extend_from_slice(bytes);
    copy
}
