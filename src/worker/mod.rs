//! The built-in worker: every database that has the extension is swept each `pgcache.expire_interval`.
//!
//! - [`launcher`]: one process for the server, which starts short visits to the databases in turn.
//! - [`visit`]: what such a visit does. It connects to its database, sweeps, vacuums, and ends.
//! - [`turns`], [`job`], [`pace`]: how the caches of a database share its time.
//! - [`vacuum`]: what it vacuums; on a writer's request the launcher starts a visit early for it.
//!
//! Not a place for rules about caches: those are in `cache`. A visit is short because it takes one of
//! `max_worker_processes`; it gives way to everybody (see `pg::worker::background`).

mod job;
mod launcher;
mod pace;
mod turns;
mod vacuum;
mod visit;

use crate::cache::expiry::on_demand;
use crate::cache::expiry::upkeep::{self, Due};
use crate::pg::session::failure::Failure;
use crate::pg::shmem::worker_state::SweepState;
use crate::pg::worker::background::{self, Tasks};

/// Registers the launcher; only while preloading.
pub fn register() {
    background::register(Tasks {
        launcher: launcher::run,
        visit: visit::run,
    });
}

/// Notes that a cache could not be swept, so that it is left alone for a while; warns the first time.
fn put_off(due: &Due, state: &SweepState, failure: &Failure) {
    if upkeep::put_off(state) == 1 {
        failure.warn(on_demand::could_not_sweep(&due.name));
    }
}
