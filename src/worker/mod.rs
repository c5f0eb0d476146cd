//! The built-in worker, which sweeps every database that has the extension, once in each `pgcache.expire_interval`.
//!
//! - [`launcher`]: one process for the server, which starts short visits to the databases in turn.
//! - [`visit`]: one visit, which connects to its database, sweeps, vacuums, and ends.
//! - [`turns`], [`sweep_job`], [`pace`]: how the caches of a database share the time of a visit.
//! - [`vacuum`]: the VACUUMs of a visit. When a writer requests one, the launcher starts a visit early.
//!
//! The rules about caches are in `cache`. A visit is short because it takes one of `max_worker_processes`. Its worker
//! gives way to every session (see `pg::worker::background`).

mod launcher;
mod pace;
mod sweep_job;
mod turns;
mod vacuum;
mod visit;

use std::time::Duration;

use crate::pg::worker::background::{self, Tasks};

/// Registers the launcher; called only while preloading. `beside` is another task of the launcher. The launcher runs it
/// at each wake-up, and it returns the time until its next run.
pub fn register(beside: fn() -> Option<Duration>) {
    background::register(Tasks {
        launcher: launcher::run,
        beside,
        visit: visit::run,
    });
}
