//! Memory that forked processes share.

use std::io::Error;
use std::ptr::NonNull;

use crate::Result;

/// Maps zeroed memory that this process shares with processes that it forks later. The memory is never unmapped.
pub fn zeroed(bytes: usize) -> Result<NonNull<u8>> {
    // SAFETY: no address is requested, so the kernel makes a new mapping and changes no existing mapping.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    match NonNull::new(memory.cast()) {
        Some(start) if memory != libc::MAP_FAILED => Ok(start),
        _ => Err(Error::last_os_error().into()),
    }
}

/// Returns an array of zeroed memory that this process shares with processes that it forks later.
///
/// # Safety
/// Zeroes are a valid `T`, and several processes may use a `T` at once, because it consists of atomics.
pub unsafe fn array<T>(count: usize) -> Result<&'static [T]> {
    assert!(align_of::<T>() <= 4096);
    let memory = zeroed(count * size_of::<T>())?;
    // SAFETY: page-aligned, large enough, zeroed, and never unmapped.
    Ok(unsafe { std::slice::from_raw_parts(memory.cast().as_ptr(), count) })
}
