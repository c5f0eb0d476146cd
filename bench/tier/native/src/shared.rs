//! Memory that forked processes share.

use std::ptr::NonNull;

/// Zeroed memory that the processes forked from now on share with this one; never given back.
pub fn zeroed(bytes: usize) -> NonNull<u8> {
    // SAFETY: a new mapping of nobody else's.
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
    assert_ne!(memory, libc::MAP_FAILED, "{bytes} bytes of shared memory");
    NonNull::new(memory.cast()).expect("a mapping is not at 0")
}

/// An array of such memory.
///
/// # Safety
/// Zeroes are a valid `T`, and `T` may be used by several processes at once: atomics.
pub unsafe fn array<T>(count: usize) -> &'static [T] {
    assert!(align_of::<T>() <= 4096);
    let memory = zeroed(count * size_of::<T>());
    // SAFETY: page-aligned, large enough, zeroed, and never unmapped.
    unsafe { std::slice::from_raw_parts(memory.cast().as_ptr(), count) }
}
