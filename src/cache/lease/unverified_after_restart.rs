//! Tracks the caches that a transaction prepared before the last restart may have changed. The restart loses the marks
//! of the transaction, but not its locks.
//!
//! Also tracks caches that a writer was changing as a whole while they had no slot (`lock::mark_without_slot`). No
//! entry of a cache is copied, leased or stored while a transaction of either kind holds a lock on the cache, even if
//! the server ran without a tier before. The slot of a table begins unverified.

use std::sync::atomic::Ordering::SeqCst;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::Cache;
use crate::cache::tier::slots;
use crate::pg::session::{self, lock, transaction};
use crate::pg::shmem::tier::{Tier, tier};

/// Returns whether the cache is verified: no undecided transaction that was prepared before the server's start has
/// changed it, and no writer that found no slot is changing it as a whole. Once the result is true, it stays true. It
/// is false on a standby, which decides no transaction. The caller holds no LWLock.
#[inline]
pub fn is_proven(tier: &Tier, slot: u32, relation: Oid) -> bool {
    tier.slot(slot).unproven.load(SeqCst) == 0 || prove(tier, slot, relation)
}

#[cold]
fn prove(tier: &Tier, slot: u32, relation: Oid) -> bool {
    let proven = !session::in_recovery()
        && !lock::is_touched_since_before_start(relation)
        && !lock::is_marked_without_slot(relation);
    if proven {
        tier.slot(slot).unproven.store(0, SeqCst);
    }
    proven
}

/// Checks all caches of this database again after a prepared transaction was decided.
pub fn prove_all() {
    let Some(tier) = tier() else {
        return;
    };
    for (relation, slot) in slots::of_database(tier, session::database()) {
        is_proven(tier, slot, relation);
    }
}

/// Returns whether the cache of a slot is unverified, and the server is not a standby. The caller may hold any lock.
#[inline]
pub fn is_suspended(tier: &Tier, slot: u32) -> bool {
    tier.slot(slot).unproven.load(SeqCst) != 0 && !session::in_recovery()
}

/// Returns the result of [`is_proven`] for a cache that may lack a slot. Without a slot, the function checks the locks
/// at each call. Returns true on a standby, where replayed changes remove nothing, and for a temporary table.
pub fn is_cache_proven(tier: &Tier, cache: &Cache) -> bool {
    if cache.temporary || session::in_recovery() {
        return true;
    }
    match cache.slot_or_new(tier) {
        Some(slot) => is_proven(tier, slot, cache.relation),
        None if transaction::most_prepared() == 0 => true,
        None => !lock::is_touched_since_before_start(cache.relation),
    }
}
