//! pgcache: a cache that lives in Postgres.
//!
//! The map, from the top down; a module names only those below it:
//!
//! - `api`: what a user types. Arguments, privileges, conversions; one file a family of functions.
//! - `resp`: the Redis protocol: connections, commands, who may.
//! - `worker`: what sweeps by itself. A launcher, and its visits to databases.
//! - `cache`: what a call means. Keys, deadlines, entries, definitions, expiry, coherence.
//! - `pg`: everything that touches Postgres' C interface; all unsafe code.
//!
//! The SQL declarations stand in `sql/pgcache--<version>.sql`, written by hand: the front page of
//! the API. ARCHITECTURE.md tells the life of a get and of a set.

mod api;
mod cache;
mod error;
mod guc;
#[allow(unsafe_code)]
mod pg;
mod resp;
mod worker;

use pgrx::prelude::*;

pgrx::pg_module_magic!(name, version);

/// Called once in each process that loads the library.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    pg::hooks::panic_hook::install();
    let preloading = pg::shmem::tier::preloading();
    guc::define(preloading);
    if preloading {
        pg::shmem::tier::register();
        resp::register();
        worker::register(resp::keep);
    }
    pg::memory::emergency::acquire();
    pg::catalog::invalidation::register();
    pg::hooks::name_guard::register();
    pg::hooks::expired_rows::register(preloading);
    pg::hooks::utility::register();
    cache::observer::register();
}
