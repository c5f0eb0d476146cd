//! The panic hook of the extension, which keeps backtraces out of the errors that clients receive.
//!
//! Every error travels through Rust as a panic. If the server's environment sets RUST_BACKTRACE or RUST_LIB_BACKTRACE,
//! pgrx's hook takes a backtrace at each panic and puts it into the error's DETAIL. The backtrace shows the server's
//! paths and functions to any client that can cause an error. So this module's hook replaces pgrx's hook. It neither
//! reads nor changes the environment, because threads of other libraries may read the environment at the same time.

use std::io::Write;
use std::panic::{PanicHookInfo, set_hook};

/// Replaces pgrx's hook, which pgrx installed just before, while the library was loaded.
pub fn install() {
    set_hook(Box::new(log_panic));
}

/// Writes the source location of an internal defect to the server's log, but not its message, which may contain a
/// value. Errors raised by pgcache or by Postgres carry their own location and are not logged here.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    if (payload.is::<&str>() || payload.is::<String>())
        && let Some(place) = panic.location()
    {
        // Ignored, because a failed write cannot be reported anywhere else.
        let _ = writeln!(std::io::stderr(), "pgcache: internal error at {place}");
    }
}
