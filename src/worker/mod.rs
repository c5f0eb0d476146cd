//! The built-in worker: every database that has the extension is swept each `pgcache.expire_interval`.
//!
//! - [`launcher`]: one process for the server, which starts short visits to the databases in turn.
//! - [`visit`]: what such a visit does. It connects to its database, sweeps, vacuums, and ends.
//! - [`turns`], [`job`], [`pace`]: how the caches of a database share its time.
//! - [`vacuum`]: what it vacuums, and the alarms of writers, for which the launcher starts a visit early.
//!
//! Not a place for rules about caches: those are in `cache`. A visit is short because it takes one of
//! `max_worker_processes`; it is in nobody's way (see `pg::worker::background`).

mod job;
mod launcher;
mod pace;
mod turns;
mod vacuum;
mod visit;

use crate::cache::expiry::sweep;
use crate::cache::expiry::upkeep::{self, Due};
use crate::pg::session::failure::Failure;
use crate::pg::shmem::worker_state::Record;
use crate::pg::worker::background::{self, Tasks};

/// Registers the launcher; only while preloading.
pub fn register() {
    background::register(Tasks {
        launcher: launcher::run,
        visit: visit::run,
    });
}

/// Puts a failing cache off, and says so the first time.
fn put_off(due: &Due, record: &Record, failure: &Failure) {
    if upkeep::put_off(record) == 1 {
        failure.warn(sweep::could_not_sweep(&due.name));
    }
}
