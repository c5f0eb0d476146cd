//! Expired rows do not exist for plain SQL: every scan of a cache that the planner plans gets the
//! condition `pgcache.live(expires_at)`, and every key that a statement writes goes through
//! `pgcache.renew`.
//!
//! Not what COPY of a table, ANALYZE or a rewrite reads: the planner is not asked there. What is
//! pgcache's own statement, and reads expired rows on purpose, says so in its text: see [`OWN`].

mod cached;
pub mod live;
mod renew;
mod scans;
mod writes;

use std::ffi::CStr;

use pgrx::pg_sys;

/// The aliases by which pgcache's own statements name a cache's table; they see its expired rows.
///
/// A mark in the text, since a flag of the session would also count for the triggers that the
/// statement fires, for plans that are made anew meanwhile, and not in parallel workers. Whoever
/// writes it into a query of their own sees what `pgcache.show_expired` shows them as well.
const OWN: [&CStr; 2] = [c"pgcache_c", c"pgcache_e"];

/// Hooks into the planner; called once while the library is loaded. Where that is in the midst of a
/// session, plans that it has kept know nothing of it, and are made anew.
pub fn register(preloading: bool) {
    scans::register();
    writes::register();
    if !preloading {
        // SAFETY: flags the plans that are kept; one that runs just now ends as it began.
        unsafe { pg_sys::ResetPlanCache() };
    }
}

/// Whether a range table's entry is a table as one of our own statements names it.
///
/// # Safety
/// The entry is one of a query.
unsafe fn is_own(entry: *const pg_sys::RangeTblEntry) -> bool {
    // SAFETY: an alias, where there is one, has a name.
    unsafe {
        let alias = (*entry).alias;
        !alias.is_null() && OWN.contains(&CStr::from_ptr((*alias).aliasname))
    }
}
