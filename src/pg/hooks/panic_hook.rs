//! The panic hook of the extension, which keeps backtraces out of the errors that clients receive.
//!
//! Every error travels through Rust as a panic. Where the server's environment has RUST_BACKTRACE or
//! RUST_LIB_BACKTRACE, the hook that pgrx installs takes a backtrace at each panic and puts it into the error's
//! DETAIL: paths and functions of the server, visible to any client that can cause an error. This hook replaces that
//! one. It neither reads nor changes the environment, which other libraries of the process may read in threads of
//! their own.

use std::io::Write;
use std::panic::{PanicHookInfo, set_hook};

/// Replaces pgrx's hook, which was installed right before this, when the library was loaded.
pub fn install() {
    set_hook(Box::new(tell_the_log));
}

/// Writes the source location of an internal defect to the server's log, but not its message, which may contain a
/// value. Errors raised by us or by Postgres carry their own location and are not logged here.
fn tell_the_log(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    if (payload.is::<&str>() || payload.is::<String>())
        && let Some(place) = panic.location()
    {
        // If the write fails, no other place is left to report it.
        let _ = writeln!(std::io::stderr(), "pgcache: internal error at {place}");
    }
}
