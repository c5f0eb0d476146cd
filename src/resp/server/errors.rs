//! Writes the errors for Redis features that pgcache does not support, and for missing privileges. Errors about entries
//! are in `commands`.

use pgcache_resp::Writer;

/// Writes the error for a Redis command that pgcache does not support.
pub fn unsupported(name: &str, replies: &mut Writer) {
    let name = name.replace('|', " ").to_ascii_uppercase();
    replies.error(&[b"ERR ", name.as_bytes(), b" is not supported by pgcache"]);
}

/// Writes the error for a command that the client's role may not run, with Redis' text.
pub fn no_power(name: &str, user: &[u8], replies: &mut Writer) {
    replies.error(&[
        b"NOPERM User ",
        user,
        b" has no permissions to run the '",
        name.as_bytes(),
        b"' command",
    ]);
}
