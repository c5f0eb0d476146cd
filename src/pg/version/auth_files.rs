//! Files in the manner of pg_hba.conf, as words.

use pgrx::pg_sys;

/// Functions that pgrx does not declare.
mod differing {
    use std::ffi::{c_char, c_int};

    use pgrx::pg_sys::*;

    unsafe extern "C-unwind" {
        #[cfg(feature = "pg15")]
        pub fn tokenize_auth_file(
            name: *const c_char,
            file: *mut FILE,
            lines: *mut *mut List,
            level: c_int,
        ) -> MemoryContext;
        #[cfg(not(feature = "pg15"))]
        pub fn tokenize_auth_file(
            name: *const c_char,
            file: *mut FILE,
            lines: *mut *mut List,
            level: c_int,
            depth: c_int,
        );
        #[cfg(not(feature = "pg15"))]
        pub fn open_auth_file(
            name: *const c_char,
            level: c_int,
            depth: c_int,
            error: *mut *mut c_char,
        ) -> *mut FILE;
        #[cfg(not(feature = "pg15"))]
        pub fn free_auth_file(file: *mut FILE, depth: c_int);
    }
}

/// Gives the lines of a file in the manner of pg_hba.conf, as words, to `read`; they are there until
/// it returns. None where the file cannot be opened. What is wrong with a line is told with the line
/// and, at this level, in the log.
///
/// # Safety
/// Inside of a transaction, which ends what an error leaves.
pub unsafe fn with_auth_lines<R>(
    name: &std::ffi::CStr,
    level: i32,
    read: impl FnOnce(*mut pg_sys::List) -> R,
) -> Option<R> {
    use pg_sys::ffi::pg_guard_ffi_boundary as guarded;
    use std::ptr::null_mut;
    let name = name.as_ptr();
    let mut lines: *mut pg_sys::List = null_mut();
    let to = &raw mut lines;
    // SAFETY: the name lives through the calls. Each runs under a guard of its own that an error
    // leaves with nothing to drop; the file and what was made of it are given back after `read`.
    #[cfg(feature = "pg15")]
    unsafe {
        let file = pg_sys::AllocateFile(name, c"r".as_ptr());
        if file.is_null() {
            return None;
        }
        let context = guarded(|| differing::tokenize_auth_file(name, file, to, level));
        pg_sys::FreeFile(file);
        let result = read(lines);
        pg_sys::MemoryContextDelete(context);
        Some(result)
    }
    // SAFETY: as above; the file is the first of its kind, at depth 0.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        let file = guarded(|| differing::open_auth_file(name, level, 0, null_mut()));
        if file.is_null() {
            return None;
        }
        guarded(|| differing::tokenize_auth_file(name, file, to, level, 0));
        let result = read(lines);
        guarded(|| differing::free_auth_file(file, 0));
        Some(result)
    }
}
