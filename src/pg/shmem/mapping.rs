//! Requests memory from the system only to learn whether it is available.
//!
//! The tier's own memory does not come from here: Postgres maps it together with the rest of its shared memory. When
//! the system refuses that, Postgres cannot say which library needed it; so this check runs first.

/// Returns whether the system can map this many bytes now. The mapping is released at once, untouched.
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
    // SAFETY: a new anonymous mapping, which only this function uses.
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

/// Checks nothing on other systems than Linux, where Postgres reports a refusal itself.
#[cfg(not(target_os = "linux"))]
pub fn system_gives(_bytes: usize) -> bool {
    true
}
