//! Tokenizes files in the format of pg_hba.conf, and reads the lines that Postgres' parsers return. The functions
//! and structures differ between versions.

use std::ffi::{CStr, c_char};

use pgrx::pg_sys;

use super::hba_layout as layout;
#[cfg(feature = "pg15")]
pub use layout::{
    AuthToken15 as AuthToken, HbaLine15 as HbaLine, IdentLine15 as IdentLine,
    TokenizedAuthLine15 as TokenizedAuthLine,
};
#[cfg(not(feature = "pg15"))]
pub use layout::{
    AuthToken16 as AuthToken, HbaLine16 as HbaLine, IdentLine16 as IdentLine,
    TokenizedAuthLine16 as TokenizedAuthLine,
};

#[cfg(not(feature = "pg19"))]
pub const PEER: u32 = layout::method::PEER;
#[cfg(feature = "pg19")]
pub const PEER: u32 = layout::method::PEER19;

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

/// Tokenizes a file in the format of pg_hba.conf, and passes its lines to `read`; the lines live until `read` returns.
/// Returns None if Postgres cannot open the file. If a line has an error, Postgres stores the message in the line and
/// logs it at this level.
///
/// # Safety
/// Called inside a transaction, whose end releases resources after an error.
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
    // SAFETY: the name lives through the calls. Each call runs under its own guard, whose frames hold nothing to drop;
    // the file and its lines are released after `read`.
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
    // SAFETY: as for Postgres 15; depth 0 marks a file that is not included by another file.
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

/// Returns the name of the file that contains a line; None in Postgres 15, which does not record it.
///
/// # Safety
/// The line comes from the tokenizer. The returned name lives as long as the line.
pub unsafe fn file_of(line: &TokenizedAuthLine) -> Option<&CStr> {
    #[cfg(feature = "pg15")]
    let name: *const c_char = {
        let _ = line;
        std::ptr::null()
    };
    #[cfg(not(feature = "pg15"))]
    let name = line.file_name;
    // SAFETY: the pointer is not NULL when it is read, and then it is the C string of the line's file name.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

/// Returns the fields of a parsed line of pg_hba.conf.
///
/// # Safety
/// `parsed` is a line that Postgres has parsed, and lives as long as the result.
pub unsafe fn fields_of<'l>(parsed: *mut HbaLine) -> &'l layout::HbaLine15 {
    // SAFETY: by the caller's contract.
    unsafe {
        #[cfg(feature = "pg15")]
        return &*parsed;
        #[cfg(not(feature = "pg15"))]
        return &(*parsed).line;
    }
}

/// Returns whether a word is a regular expression.
fn is_pattern(word: &AuthToken) -> bool {
    #[cfg(feature = "pg15")]
    let _ = word;
    #[cfg(feature = "pg15")]
    return false;
    #[cfg(not(feature = "pg15"))]
    return !word.regex.is_null();
}

/// A word of a parsed line.
pub struct Word {
    pub text: *const c_char,
    pub quoted: bool,
    pub is_pattern: bool,
}

/// Returns the map of a parsed line of pg_ident.conf, its system user, and its role.
///
/// # Safety
/// `parsed` is a line that Postgres has parsed, and the caller uses it only for these words.
pub unsafe fn words_of(parsed: *mut IdentLine) -> (*const c_char, Word, Word) {
    // SAFETY: a parsed line has its map and both words.
    unsafe { ((*parsed).usermap, system_user(parsed), role(parsed)) }
}

/// Returns the system user of a line. In Postgres 15 a line's compiled expression is allocated with malloc, so this
/// function frees it.
///
/// # Safety
/// The same as for `words_of`.
#[cfg(feature = "pg15")]
unsafe fn system_user(parsed: *mut IdentLine) -> Word {
    unsafe extern "C-unwind" {
        fn pg_regfree(regex: *mut std::ffi::c_void);
    }
    // SAFETY: the strings of a parsed line are never NULL; its expression exists if the name begins with a slash, and
    // no code uses it again.
    unsafe {
        let text = (*parsed).ident_user;
        let is_pattern = *text as u8 == b'/';
        if is_pattern {
            let regex = (&raw mut (*parsed).re).cast();
            pg_sys::ffi::pg_guard_ffi_boundary(|| pg_regfree(regex));
        }
        Word {
            text,
            quoted: true,
            is_pattern,
        }
    }
}

/// Returns the role of a line. Postgres 15 always takes the role literally.
///
/// # Safety
/// The same as for `words_of`.
#[cfg(feature = "pg15")]
unsafe fn role(parsed: *mut IdentLine) -> Word {
    Word {
        // SAFETY: a parsed line has its role.
        text: unsafe { (*parsed).pg_role },
        quoted: true,
        is_pattern: false,
    }
}

/// # Safety
/// The same as for `words_of`.
#[cfg(not(feature = "pg15"))]
unsafe fn system_user(parsed: *mut IdentLine) -> Word {
    // SAFETY: a parsed line has its words.
    unsafe { word_of(&*(*parsed).system_user) }
}

/// # Safety
/// The same as for `words_of`.
#[cfg(not(feature = "pg15"))]
unsafe fn role(parsed: *mut IdentLine) -> Word {
    // SAFETY: a parsed line has its words.
    unsafe { word_of(&*(*parsed).pg_user) }
}

/// Returns a word of a list or of a line.
pub fn word_of(word: &AuthToken) -> Word {
    Word {
        text: word.string,
        quoted: word.quoted,
        is_pattern: is_pattern(word),
    }
}
