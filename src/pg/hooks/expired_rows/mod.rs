//! Expired rows do not exist for plain SQL: every scan of a cache that the planner plans gets the
//! condition `pgcache.live(expires_at)`, or what an attached table has in its place, and every key
//! that a statement writes goes through `pgcache.renew`.
//!
//! Not what COPY of a table, ANALYZE or a rewrite reads: the planner is not asked there. What is
//! pgcache's own statement, and reads expired rows on purpose, says so in its text: see `OWN` in
//! `cached.rs`.

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

/// Whether the server loads the library for all of its sessions. Set before any of them is there.
static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Why plain SQL may see expired rows of a cache here; None where no session does, or none of those
/// for which `session_preload_libraries` is set as it is for this one.
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

/// Hooks into the planner; called once while the library is loaded. Where that is in the midst of a
/// session, plans that it has kept know nothing of it, and are made anew.
pub fn register(preloading: bool) {
    begun::register();
    scans::register();
    writes::register();
    PRELOADED.store(preloading, Ordering::Relaxed);
    if !preloading {
        // SAFETY: flags the plans that are kept; one that runs just now ends as it began.
        unsafe { pg_sys::ResetPlanCache() };
    }
}
