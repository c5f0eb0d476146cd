//! Converts names and texts for pgcache's messages in databases whose encoding is not UTF-8.
//!
//! pgrx takes a message as UTF-8 and passes its bytes to Postgres as if they were in the database's encoding. So this
//! module decodes names from the database's encoding, and in messages replaces characters outside ASCII by Unicode
//! escapes, which are valid in every encoding. Otherwise a client would receive bytes that it cannot convert.
//!
//! When pgrx catches a Postgres error and raises a copy of it, it treats the texts as UTF-8, too, and replaces invalid
//! bytes by U+FFFD. So this module keeps the original bytes when Postgres reports the error, and restores them when
//! pgrx reports the copy.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::ManuallyDrop;

use pgrx::{PgLogLevel, pg_sys};

/// Postgres' number for the encoding SQL_ASCII (mb/pg_wchar.h), in which bytes above 127 have no defined meaning.
const SQL_ASCII: i32 = 0;
/// Postgres' number for the encoding UTF8 (mb/pg_wchar.h).
const UTF8: i32 = 6;

// Declared without the guard that pgrx puts around calls, because pgcache calls some of these functions while Postgres
// reports an error, when no further error could be caught.
unsafe extern "C-unwind" {
    safe fn GetDatabaseEncoding() -> c_int;
    fn pg_verifymbstr(bytes: *const c_char, length: c_int, no_error: bool) -> bool;
    fn CopyErrorData() -> *mut pg_sys::ErrorData;
    fn FreeErrorData(error: *mut pg_sys::ErrorData);
    fn errmsg_internal(format: *const c_char, ...) -> c_int;
    fn errdetail_internal(format: *const c_char, ...) -> c_int;
    fn errhint(format: *const c_char, ...) -> c_int;
}

fn of_the_database() -> i32 {
    GetDatabaseEncoding()
}

/// Returns whether these bytes are valid text in the database's encoding and contain no NUL. Raises no error.
pub fn is_text(bytes: &[u8]) -> bool {
    let Ok(length) = c_int::try_from(bytes.len()) else {
        return false;
    };
    // SAFETY: the call reads `length` bytes; with `no_error` it returns false for invalid bytes.
    unsafe { pg_verifymbstr(bytes.as_ptr().cast(), length, true) }
}

/// Converts text from the database's encoding to UTF-8.
pub fn decode(bytes: &[u8]) -> String {
    let known = !matches!(of_the_database(), SQL_ASCII | UTF8);
    if !known || bytes.is_ascii() {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    // SAFETY: the conversion reads as many bytes as the slice has. Every database encoding has a conversion to UTF-8,
    // and it returns a palloc'd C string because the bytes are not ASCII; the string is copied.
    unsafe {
        let text = pg_sys::pg_server_to_any(bytes.as_ptr().cast(), bytes.len() as i32, UTF8);
        std::ffi::CStr::from_ptr(text)
            .to_string_lossy()
            .into_owned()
    }
}

/// Returns the message in a form that is valid in this database's encoding.
pub fn printable(message: String) -> String {
    match of_the_database() {
        UTF8 => message,
        _ => message.chars().map(escape).collect(),
    }
}

fn escape(c: char) -> String {
    match c.is_ascii() {
        true => c.to_string(),
        false => c.escape_unicode().to_string(),
    }
}

/// The message, detail and hint of an error; a text that is valid UTF-8 is None.
type Words = [Option<CString>; 3];

thread_local! {
    /// The texts of the last error. Never dropped, so that no destructor runs at the end of the process.
    static LAST: ManuallyDrop<Cell<Words>> = const {
        ManuallyDrop::new(Cell::new([const { None }; 3]))
    };
}

/// Keeps the texts of an error, or restores them if pgrx reports the copy of an error whose texts were kept.
/// Postgres calls this while it reports an error.
pub fn keep_words() {
    if of_the_database() == UTF8 {
        return;
    }
    // SAFETY: Postgres is reporting an error, so an error exists to copy. The copy must not be allocated in the
    // report's own memory context, which is current. The error's texts are NULL or C strings.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = pg_sys::TopMemoryContext;
        let error = CopyErrorData();
        pg_sys::CurrentMemoryContext = context;
        if (*error).elevel >= PgLogLevel::ERROR as i32 {
            let words = [(*error).message, (*error).detail, (*error).hint];
            let put = [errmsg_internal, errdetail_internal, errhint];
            let mut last = LAST.with(|last| last.take());
            for ((kept, word), put) in last.iter_mut().zip(words).zip(put) {
                let word = (!word.is_null()).then(|| CStr::from_ptr(word));
                match kept {
                    Some(kept) if word.is_some_and(|word| is_spoiled(kept, word)) => {
                        put(c"%s".as_ptr(), kept.as_ptr());
                    }
                    _ => *kept = word.filter(|word| word.to_str().is_err()).map(Into::into),
                }
            }
            LAST.with(|kept| kept.set(last));
        }
        FreeErrorData(error);
    }
}

/// Returns whether `word` is the text `kept` after Rust has replaced its invalid bytes.
fn is_spoiled(kept: &CStr, word: &CStr) -> bool {
    kept.to_string_lossy().as_bytes() == word.to_bytes()
}
