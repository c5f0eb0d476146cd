//! Asks the system for memory only to hear whether there is any.
//!
//! Not where the tier gets its own: Postgres maps that, together with all else that it shares. When
//! the system refuses, Postgres does not know for whom it asked; so we ask before it does.

/// Whether a mapping of this size can be made now; it is given back at once, untouched.
#[cfg(target_os = "linux")]
pub fn system_gives(bytes: usize) -> bool {
    use std::ffi::c_void;
    unsafe extern "C" {
        fn mmap(
            at: *mut c_void,
            n: usize,
            access: i32,
            kind: i32,
            file: i32,
            from: i64,
        ) -> *mut c_void;
        fn munmap(at: *mut c_void, n: usize) -> i32;
    }
    const READ_AND_WRITE: i32 = 3;
    const SHARED_AND_ANONYMOUS: i32 = 0x21;
    // SAFETY: a new mapping of no file, which nobody but this function ever sees.
    unsafe {
        let memory = mmap(
            std::ptr::null_mut(),
            bytes,
            READ_AND_WRITE,
            SHARED_AND_ANONYMOUS,
            -1,
            0,
        );
        memory as isize != -1 && munmap(memory, bytes) == 0
    }
}

/// Elsewhere than on Linux nobody asks: Postgres will say it.
#[cfg(not(target_os = "linux"))]
pub fn system_gives(_bytes: usize) -> bool {
    true
}
