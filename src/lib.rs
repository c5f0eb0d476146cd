//! pgcache: a cache that lives in Postgres.
//!
//! The map, from the top down; a module names only modules below it:
//!
//! - `api`: the functions that a user calls. Arguments, privileges, conversions; one file a family of functions.
//! - `resp`: the Redis protocol: connections, commands, permissions.
//! - `worker`: the background sweeps. A launcher, and its visits to databases.
//! - `cache`: the meaning of a call. Keys, deadlines, entries, definitions, expiry, coherence.
//! - `pg`: all access to Postgres' C interface; all unsafe code.
//!
//! The SQL declarations are in `sql/pgcache--<version>.sql`, written by hand: the front page of the API.
//! ARCHITECTURE.md describes the life of a get and of a set.

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
