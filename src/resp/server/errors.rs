//! The errors for what there is in Redis, and not here.

use pgcache_resp::Writer;

/// The error for what there is in Redis, and not here.
pub fn unsupported(name: &str, replies: &mut Writer) {
    let name = name.replace('|', " ").to_ascii_uppercase();
    replies.error(&[b"ERR ", name.as_bytes(), b" is not supported by pgcache"]);
}

/// The error for what the client's role may not do, in Redis' words.
pub fn no_power(name: &str, user: &[u8], replies: &mut Writer) {
    replies.error(&[
        b"NOPERM User ",
        user,
        b" has no permissions to run the '",
        name.as_bytes(),
        b"' command",
    ]);
}
