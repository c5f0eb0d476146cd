//! Assigns and frees slots. The index of its slot identifies a cache in the hot tier.
//!
//! A slot belongs to a relation of a database until the relation is dropped, or its creation is rolled back; on a
//! standby until a session notices the drop. A slot is never taken from a live relation.
//!
//! Code that remembers a slot by its index reads the slot's version at each use, and then checks which cache owns the
//! slot. A freed slot first gets a new version and later a new cache. So if the check succeeds, an entry with the
//! version that was read belongs to the expected cache.

use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::RemovalCause;
use pgrx::pg_sys::Oid;

use super::walk;
use crate::pg::catalog::{database, relation};
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{self, clock, lock, transaction};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::slot::Share;
use crate::pg::shmem::tier::Tier;

/// Returns the caches of a database that have a slot: relation and slot.
pub fn of_database(tier: &Tier, database: Oid) -> impl Iterator<Item = (Oid, u32)> {
    tier.caches()
        .iter()
        .enumerate()
        .filter_map(move |(slot, cache)| {
            let cache = cache.load(SeqCst)?;
            (cache.database() == database).then_some((cache.relation(), slot as u32))
        })
}

/// Returns the slot of a cache; None if the cache has none.
pub fn find(tier: &Tier, cache: CacheId) -> Option<u32> {
    let place = tier
        .caches()
        .iter()
        .position(|slot| slot.is(cache, SeqCst))?;
    Some(place as u32)
}

/// Returns the slot of a cache, and assigns one if the cache has none. Returns None if all slots are taken.
/// `memory_id` is the id of a memory cache, or 0 for a table.
pub fn assign(tier: &Tier, cache: CacheId, memory_id: u64) -> Option<u32> {
    let to_open = session::in_recovery();
    let take = || take(tier, cache, memory_id, to_open);
    let assign = || tier.assigning(|| find(tier, cache).or_else(take));
    find(tier, cache).or_else(assign).or_else(|| {
        // A table cache works without a slot, and its reads should not scan all slots each time.
        if memory_id == 0 && !session::in_recovery() {
            return None;
        }
        free_gone(tier);
        assign()
    })
}

/// Gives a slot to a memory cache whose entries are restored at the start, when no catalog can be read. The first
/// session that uses the cache opens the slot. Returns None if all slots are taken.
pub fn assign_at_start(tier: &Tier, cache: CacheId, memory_id: u64) -> Option<u32> {
    tier.assigning(|| take(tier, cache, memory_id, true))
}

/// Takes a free slot; the caller holds the assignment lock. `to_open` is true if the first user of a memory cache on a
/// primary must open the slot. Skips a slot that a transaction has marked for the former cache and not unmarked yet,
/// because that transaction will still lower the slot's `pending_writers`. This happens if DROP frees a slot while
/// another transaction that has marked it is committing.
fn take(tier: &Tier, cache: CacheId, memory_id: u64, to_open: bool) -> Option<u32> {
    let is_free = |number: &u32| {
        tier.cache_of(*number).load(SeqCst).is_none()
            && tier.slot(*number).pending_writers.load(SeqCst) == 0
    };
    let number = (0..tier.caches().len() as u32).find(is_free)?;
    let slot = tier.slot(number);
    slot.reset_figures();
    slot.forget_loads();
    forget_share(tier, number);
    slot.memory_id.store(memory_id, SeqCst);
    let begins_suspended = !fault::on(Fault::NewSlotNotSuspended);
    slot.suspended.store(u32::from(begins_suspended), SeqCst);
    // A writer that changed a whole table while the table had no slot has locked the table instead, so the slot begins
    // unverified. Removals before the slot was taken are not known, so the slot counts as if entries had just been
    // removed.
    let may_be_changing = memory_id == 0 || transaction::most_prepared() > 0;
    let begins_unproven = may_be_changing && !fault::on(Fault::NewSlotNotUnproven);
    slot.unproven.store(u32::from(begins_unproven), SeqCst);
    // No session opens the slot of a table, whose copies are made only after the promotion.
    let is_memory = memory_id != 0 || fault::on(Fault::TableSlotToOpen);
    slot.recovered
        .store(u32::from(is_memory && to_open), SeqCst);
    if !fault::on(Fault::NewSlotForgetsRemovals) {
        slot.note_removal(clock::now());
    }
    tier.renew_version(number);
    tier.cache_of(number).store(Some(cache), SeqCst);
    Some(number)
}

/// Removes the share of a slot that has no cache. The caller holds the assignment lock.
fn forget_share(tier: &Tier, slot: u32) {
    if !fault::on(Fault::NewSlotKeepsShare) {
        tier.put_share(slot, Share::default());
    }
}

/// Frees the slot of a dropped relation, and removes its entries.
pub fn free(tier: &Tier, cache: CacheId) {
    let Some(number) = tier.assigning(|| {
        let number = find(tier, cache)?;
        tier.renew_version(number);
        tier.cache_of(number).store(Some(CacheId::VACATED), SeqCst);
        forget_share(tier, number);
        Some(number)
    }) else {
        return;
    };
    // An interrupt would leave the slot marked as vacated, and it would never become free.
    session::uninterrupted(|| walk::remove_entries(tier, number, RemovalCause::Cleared, |_| true));
    tier.assigning(|| tier.cache_of(number).store(None, SeqCst));
}

/// Frees the slots of relations of this database, and of whole databases, that were dropped without freeing their
/// slots. A standby only replays a DROP; on a primary a session may give a cache a slot while the cache is being
/// dropped.
///
/// On a standby only memory caches have entries in a slot. Such entries may be evicted at any time, so freeing a slot
/// too early only costs misses. On a primary, a relation that is invisible here may be one that is being created; its
/// creator then holds a lock on it.
pub fn free_gone(tier: &Tier) {
    if fault::on(Fault::GoneSlotsKept) {
        return;
    }
    for cache in tier.caches() {
        let Some(cache) = cache
            .load(SeqCst)
            .filter(|&cache| cache != CacheId::VACATED)
        else {
            continue;
        };
        let is_there = match cache.database() == session::database() {
            true => !is_gone(cache.relation()),
            false => database::is_there(cache.database()),
        };
        if !is_there {
            free(tier, cache);
        }
    }
}

fn is_gone(relation: Oid) -> bool {
    if relation::is_there(relation) {
        return false;
    }
    let lock = lock::Brief::try_on(relation, lock::Mode::Read);
    session::in_recovery() || lock.is_some() && !relation::is_there(relation)
}

/// Frees the slots of a dropped database.
pub fn free_database(tier: &Tier, database: Oid) {
    for cache in tier.caches() {
        let cache = cache.load(SeqCst);
        if let Some(cache) = cache.filter(|cache| cache.database() == database) {
            free(tier, cache);
        }
    }
}
