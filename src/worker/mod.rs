//! The built-in worker: it sweeps every database that has the extension at each `pgcache.expire_interval`.
//!
//! - [`launcher`]: one process for the server, which starts short visits to the databases in turn.
//! - [`visit`]: such a visit. It connects to its database, sweeps, vacuums, and ends.
//! - [`turns`], [`job`], [`pace`]: how the caches of a database share its time.
//! - [`vacuum`]: its VACUUM; on a writer's request the launcher starts a visit early for it.
//!
//! Holds no rules about caches: those are in `cache`. A visit is short because it takes one of
//! `max_worker_processes`; it gives way to every session (see `pg::worker::background`).

mod job;
mod launcher;
mod pace;
mod turns;
mod vacuum;
mod visit;

use std::time::Duration;

use crate::pg::worker::background::{self, Tasks};

/// Registers the launcher; called only while preloading. `beside` is a further task at each wake-up, which returns
/// the time until the next one.
pub fn register(beside: fn() -> Option<Duration>) {
    background::register(Tasks {
        launcher: launcher::run,
        beside,
        visit: visit::run,
    });
}
