//! pgcache: a cache inside Postgres, for SQL and for Redis clients.
//!
//! The modules from the top down; a module names only modules below it:
//!
//! - `api`: the SQL functions that users call: arguments, privileges, conversions; one file for each family of
//!   functions.
//! - `resp`: the Redis protocol: connections, commands, permissions.
//! - `worker`: the background sweeps: a launcher, and its visits to databases.
//! - `cache`: the meaning of a call: keys, deadlines, entries, definitions, expiry, coherence.
//! - `pg`: all access to Postgres' C interface; all unsafe code.
//!
//! The SQL declarations are written by hand, in `sql/pgcache--<version>.sql`; start there to learn the API.
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

/// Registers settings, shared memory, workers and hooks. Postgres calls this function once in each process that loads
/// the library.
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
