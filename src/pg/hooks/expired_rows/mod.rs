//! Hides expired rows from plain SQL: every scan of a cache that the planner plans gets the condition
//! `pgcache.live(expires_at)`, or its equivalent for an attached table, and every key that a statement writes goes
//! through `pgcache.renew`.
//!
//! Does not affect COPY of a table, ANALYZE and rewrites, which are not planned. pgcache's own statements, which read
//! expired rows on purpose, say so in their text: see `OWN` in `cached.rs`.

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

/// Returns why plain SQL may see expired rows of a cache here; None where no session does, or no session with this
/// session's `session_preload_libraries`.
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

/// Installs the hooks into the planner; called once while the library is loaded. If that happens during a session,
/// its kept plans lack the condition, and are made anew.
pub fn register(preloading: bool) {
    begun::register();
    scans::register();
    writes::register();
    PRELOADED.store(preloading, Ordering::Relaxed);
    if !preloading {
        // SAFETY: flags the kept plans; a plan that is running ends as it began.
        unsafe { pg_sys::ResetPlanCache() };
    }
}
