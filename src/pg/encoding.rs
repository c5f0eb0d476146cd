//! Words of the user in our own messages, where the server's encoding is not UTF-8.
//!
//! pgrx takes a message as UTF-8 and gives its bytes to Postgres as if they were in the server's encoding. So
//! names are read from that encoding here, and what is not ASCII is written as Unicode escapes: correct in
//! every encoding, and no client is sent bytes that it cannot convert.

use pgrx::pg_sys;

/// Postgres' number of SQL_ASCII, where nobody knows what a byte means.
const SQL_ASCII: i32 = 0;
/// Postgres' number of UTF8.
const UTF8: i32 = 6;

fn of_the_database() -> i32 {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::GetDatabaseEncoding() }
}

/// Text of the server as UTF-8.
pub fn decode(bytes: &[u8]) -> String {
    let known = !matches!(of_the_database(), SQL_ASCII | UTF8);
    if !known || bytes.is_ascii() {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    // SAFETY: reads so many bytes; a conversion, which there is between every encoding of a database and
    // UTF-8, gives a palloc'd C string.
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
