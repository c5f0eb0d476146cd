//! The panic hook, which reports the beginning of an error to no client.
//!
//! Every error travels through Rust as a panic. The hook that pgrx installs takes a backtrace at each, where the
//! server's environment has RUST_BACKTRACE or RUST_LIB_BACKTRACE, and puts it into the error's DETAIL: paths and
//! functions of the server, visible to any client that can cause an error. This hook replaces it. It reads and
//! changes no environment variable, which other libraries of the process may read in threads of their own.

use std::io::Write;
use std::panic::{PanicHookInfo, set_hook};

/// Replaces pgrx's hook, which was installed right before this, when the library was loaded.
pub fn install() {
    set_hook(Box::new(tell_the_log));
}

/// Writes the place of a defect to the server's log, but not its text, which may contain a value. An error of ours or
/// of Postgres carries its own place.
fn tell_the_log(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    if (payload.is::<&str>() || payload.is::<String>())
        && let Some(place) = panic.location()
    {
        // A failed write could be reported nowhere.
        let _ = writeln!(std::io::stderr(), "pgcache: internal error at {place}");
    }
}
