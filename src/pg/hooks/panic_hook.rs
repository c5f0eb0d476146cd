//! What happens at the moment in which an error begins: nothing that a client could see.
//!
//! Every error travels through Rust as a panic. The hook that pgrx installs takes a backtrace at each, where
//! RUST_BACKTRACE or RUST_LIB_BACKTRACE stands in the server's environment, and puts it into the error's DETAIL:
//! paths and functions of the server, for whoever can make a mistake. Ours takes its place. It asks no
//! environment, and changes none: other libraries of the process may read it in threads of their own.

use std::io::Write;
use std::panic::{PanicHookInfo, set_hook};

/// Takes the place of pgrx's hook, which was installed when the library was loaded, right before this.
pub fn install() {
    set_hook(Box::new(tell_the_log));
}

/// An error of ours or of Postgres carries its own place. That of a defect goes to the server's log, where its
/// text does not: that may speak of a value.
fn tell_the_log(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    if (payload.is::<&str>() || payload.is::<String>())
        && let Some(place) = panic.location()
    {
        // Nobody could be told that it failed.
        let _ = writeln!(std::io::stderr(), "pgcache: internal error at {place}");
    }
}
