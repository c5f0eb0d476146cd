//! Words of the user in our own messages, where the server's encoding is not UTF-8.
//!
//! pgrx takes a message as UTF-8 and gives its bytes to Postgres as if they were in the server's
//! encoding. So names are read from that encoding here, and what is not ASCII is written as Unicode
//! escapes: correct in every encoding, and no client is sent bytes that it cannot convert.
//!
//! An error of Postgres that is caught, and raised again later from its copy, is taken as UTF-8 too,
//! with U+FFFD for what is none. So its bytes are kept when Postgres reports it, and put back when
//! pgrx reports the copy.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::ManuallyDrop;

use pgrx::{PgLogLevel, pg_sys};

/// Postgres' number of SQL_ASCII (mb/pg_wchar.h), where nobody knows what a byte means.
const SQL_ASCII: i32 = 0;
/// Postgres' number of UTF8 (mb/pg_wchar.h).
const UTF8: i32 = 6;

// Without the guard that pgrx puts around calls: some are made in the middle of a report, where an
// error could not be caught.
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

/// Whether these bytes are text in the server's encoding, which has no character NUL. Raises
/// nothing.
pub fn is_text(bytes: &[u8]) -> bool {
    let Ok(length) = c_int::try_from(bytes.len()) else {
        return false;
    };
    // SAFETY: it reads so many bytes; told to, it says of invalid ones that they are.
    unsafe { pg_verifymbstr(bytes.as_ptr().cast(), length, true) }
}

/// Text of the server as UTF-8.
pub fn decode(bytes: &[u8]) -> String {
    let known = !matches!(of_the_database(), SQL_ASCII | UTF8);
    if !known || bytes.is_ascii() {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    // SAFETY: the conversion reads so many bytes. There is one from every encoding of a database to
    // UTF-8, which gives a palloc'd C string, since the bytes are not ASCII; it is copied.
    unsafe {
        let text = pg_sys::pg_server_to_any(bytes.as_ptr().cast(), bytes.len() as i32, UTF8);
        std::ffi::CStr::from_ptr(text)
            .to_string_lossy()
            .into_owned()
    }
}

/// A message that this database can send.
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

/// Message, detail and hint of an error; None for one that is UTF-8 as it is.
type Words = [Option<CString>; 3];

thread_local! {
    /// Those of the last error. Never dropped.
    static LAST: ManuallyDrop<Cell<Words>> = const {
        ManuallyDrop::new(Cell::new([const { None }; 3]))
    };
}

/// Keeps what an error says, or puts it back if it is one that was kept. Called by Postgres in the
/// middle of a report.
pub fn keep_words() {
    if of_the_database() == UTF8 {
        return;
    }
    // SAFETY: a report is under way, so there is an error to copy; the copy must not lie in the
    // context of the report itself, which is current. Its words are NULL or C strings.
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

/// Whether this is what becomes of a word on its way through Rust.
fn is_spoiled(kept: &CStr, word: &CStr) -> bool {
    kept.to_string_lossy().as_bytes() == word.to_bytes()
}
