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

/// Tokenizes a file in the format of pg_hba.conf, and passes its lines to `read`; they live until it returns.
/// Returns None if the file cannot be opened. An error in a line is stored in the line, and logged at this level.
///
/// # Safety
/// Inside of a transaction, whose end releases resources after an error.
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
    // SAFETY: the name lives through the calls. Each runs under a guard of its own that an error leaves with nothing
    // to drop; the file and its lines are released after `read`.
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

/// Returns the file of a line, if it is an included one; None for the requested file itself.
///
/// # Safety
/// The line comes from the tokenizer; the name lives as long as the line.
pub unsafe fn file_of(line: &TokenizedAuthLine) -> Option<&CStr> {
    #[cfg(feature = "pg15")]
    let name: *const c_char = {
        let _ = line;
        std::ptr::null()
    };
    #[cfg(not(feature = "pg15"))]
    let name = line.file_name;
    // SAFETY: not NULL where it is read: the C string of the line's file.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

/// Returns the fields of a parsed line of pg_hba.conf.
///
/// # Safety
/// A line that Postgres has parsed, for as long as it lives.
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
/// A line that Postgres has parsed, which is used only for these words.
pub unsafe fn words_of(parsed: *mut IdentLine) -> (*const c_char, Word, Word) {
    // SAFETY: a parsed line has its map and both words.
    unsafe { ((*parsed).usermap, system_user(parsed), role(parsed)) }
}

/// In 15 the compiled expression of a line is allocated with malloc, so it is freed here.
///
/// # Safety
/// As in `words_of`.
#[cfg(feature = "pg15")]
unsafe fn system_user(parsed: *mut IdentLine) -> Word {
    unsafe extern "C-unwind" {
        fn pg_regfree(regex: *mut std::ffi::c_void);
    }
    // SAFETY: the strings of a parsed line are never NULL; its expression exists where the name begins with a slash,
    // and no code uses it again.
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

/// In 15 a role is always taken literally.
///
/// # Safety
/// As in `words_of`.
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
/// As in `words_of`.
#[cfg(not(feature = "pg15"))]
unsafe fn system_user(parsed: *mut IdentLine) -> Word {
    // SAFETY: a parsed line has its words.
    unsafe { word_of(&*(*parsed).system_user) }
}

/// # Safety
/// As in `words_of`.
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
