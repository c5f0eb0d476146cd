//! Caches of which nobody has seen since the server's start that no transaction which was prepared before
//! it, and is not decided, has changed them. What such a transaction had marked is known no more.
//!
//! And those that a writer was changing as a whole when they had no slot (`lock::mark_without_slot`).
//! Guards that nothing is copied, leased or stored of such a cache as long as a transaction of either kind
//! holds its lock, whether there was a tier before or not. A table's slot begins unproven.

use std::sync::atomic::Ordering::SeqCst;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::Cache;
use crate::cache::tier::slots;
use crate::pg::session::{self, lock, transaction};
use crate::pg::shmem::tier::{Tier, tier};

/// Whether no transaction that was prepared before the server's start, and is not decided, has changed
/// the cache. Once it is so, it stays so. Under no lightweight lock; a standby decides nothing.
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

/// Looks at all caches of this database once more, after a transaction was decided.
pub fn prove_all() {
    let Some(tier) = tier() else {
        return;
    };
    for (relation, slot) in slots::of_database(tier, session::database()) {
        is_proven(tier, slot, relation);
    }
}

/// Whether such a transaction may have changed the cache of a slot; asked under any lock.
#[inline]
pub fn is_suspended(tier: &Tier, slot: u32) -> bool {
    tier.slot(slot).unproven.load(SeqCst) != 0 && !session::in_recovery()
}

/// The same for a cache that need not have a slot: then it is asked each time. On a standby what is
/// replayed removes nothing, prepared or not.
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
