//! The built-in worker: every database that has the extension is swept each
//! `pgcache.expire_interval`.
//!
//! - [`launcher`]: one process for the server, which starts short visits to the databases in turn.
//! - [`visit`]: what such a visit does. It connects to its database, sweeps, vacuums, and ends.
//! - [`turns`], [`job`], [`pace`]: how the caches of a database share its time.
//! - [`vacuum`]: what it vacuums; on a writer's request the launcher starts a visit early for it.
//!
//! Not a place for rules about caches: those are in `cache`. A visit is short because it takes one
//! of `max_worker_processes`; it gives way to everybody (see `pg::worker::background`).

mod job;
mod launcher;
mod pace;
mod turns;
mod vacuum;
mod visit;

use std::time::Duration;

use crate::pg::worker::background::{self, Tasks};

/// Registers the launcher; only while preloading. `beside`: what it does besides, whenever it wakes,
/// and after how long it is to wake again.
pub fn register(beside: fn() -> Option<Duration>) {
    background::register(Tasks {
        launcher: launcher::run,
        beside,
        visit: visit::run,
    });
}
