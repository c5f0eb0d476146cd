//! Hides expired rows of caches from plain SQL, and makes writes replace them.
//!
//! Every scan of a cache that the planner plans gets the condition `pgcache.live(expires_at)`, or its equivalent for
//! an attached table. Every key that a statement writes goes through `pgcache.renew`, which removes an expired row
//! with this key.
//!
//! Postgres does not plan COPY of a table to a client, ANALYZE and table rewrites, so they see all rows. pgcache's own
//! statements see all rows, too; they are identified by the aliases in their text (`OWN` in `cached.rs`).

pub mod begun;
mod cached;
pub(super) mod copied;
pub mod live;
mod renew;
mod scans;
mod twice;
mod writes;

use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::pg_sys::{self, Oid};

use crate::pg::catalog::{own, relation};
use crate::pg::shmem::tier;

/// Whether the server loads the library for all of its sessions. Set before any session exists.
static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Returns the reason why plain SQL in this session may see expired rows of a cache; None if it sees none. The answer
/// holds for this session only, because other sessions may have another `session_preload_libraries`.
pub fn why_not(cache: Oid) -> Option<&'static str> {
    if relation::has_virtual_column(cache, own::COLUMNS.oid()) {
        return Some("the deadline column is a virtual generated column");
    }
    if begun::SHOW_EXPIRED.get() {
        return Some("pgcache.show_expired is on in this session");
    }
    let loads = PRELOADED.load(Ordering::Relaxed) || tier::loaded_by_sessions();
    (!loads).then_some(
        "pgcache is in neither shared_preload_libraries nor session_preload_libraries: a session sees expired rows until it calls a pgcache function",
    )
}

/// Installs the hooks into the planner; called once while the library is loaded. If the library is loaded in the middle
/// of a session, the session's cached plans lack the condition, so `register` makes Postgres plan them again.
pub fn register(preloading: bool) {
    begun::register();
    scans::register();
    writes::register();
    PRELOADED.store(preloading, Ordering::Relaxed);
    if !preloading {
        // SAFETY: the call only flags the cached plans; a running plan ends unchanged.
        unsafe { pg_sys::ResetPlanCache() };
    }
}
