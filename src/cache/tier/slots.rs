//! Slots: which cache has which number in the hot tier.
//!
//! A slot belongs to a relation of a database until that relation is dropped, or rolled back where it was
//! made; on a standby until somebody notices. It is never taken from a live relation. Who remembers a slot's
//! number checks the owner at each use, after reading the version: a slot that was freed has a new version
//! first and a new owner later, so an entry that matches the version read before is the old owner's own.

use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::Why;
use pgrx::pg_sys::Oid;

use super::walk;
use crate::pg::catalog::{database, relation};
use crate::pg::session;
use crate::pg::shmem::tier::Tier;

/// A slot that is being emptied belongs to nobody.
const NOBODY: u64 = u64::MAX;

/// Names a cache for the whole server.
pub fn owner_of(relation: Oid) -> u64 {
    owner_in(session::database(), relation)
}

fn owner_in(database: Oid, relation: Oid) -> u64 {
    u64::from(database.to_u32()) << 32 | u64::from(relation.to_u32())
}

/// The caches of a database that have a slot: relation and slot.
pub fn of_database(tier: &Tier, database: Oid) -> impl Iterator<Item = (Oid, u32)> {
    tier.owners()
        .iter()
        .enumerate()
        .filter_map(move |(number, owner)| {
            let owner = owner.load(SeqCst);
            let ours = owner >> 32 == u64::from(database.to_u32()) && owner != NOBODY;
            ours.then_some((Oid::from_u32(owner as u32), number as u32))
        })
}

/// The slot of a cache, if it has one.
pub fn find(tier: &Tier, owner: u64) -> Option<u32> {
    let place = tier
        .owners()
        .iter()
        .position(|slot| slot.load(SeqCst) == owner)?;
    Some(place as u32)
}

/// The slot of a cache, given one if it has none; None when all are taken. `memory`: the id of a memory
/// cache, 0 for a table.
pub fn assign(tier: &Tier, owner: u64, memory: u64) -> Option<u32> {
    let assign = || tier.assigning(|| find(tier, owner).or_else(|| take(tier, owner, memory)));
    find(tier, owner).or_else(assign).or_else(|| {
        free_gone(tier);
        assign()
    })
}

/// As [`assign`], for a table; where all slots are taken, `otherwise` runs before anybody can be given one.
pub fn assign_or(tier: &Tier, owner: u64, otherwise: impl FnOnce()) -> Option<u32> {
    find(tier, owner).or_else(|| {
        tier.assigning(|| {
            let slot = find(tier, owner).or_else(|| take(tier, owner, 0));
            if slot.is_none() {
                otherwise();
            }
            slot
        })
    })
}

/// Takes a free slot; the caller holds the assignment lock. One whose former cache was marked by
/// somebody who has not unmarked yet (DROP frees a slot while another transaction that marked it is
/// still committing) is left alone: that `pend` will fall on this slot.
fn take(tier: &Tier, owner: u64, memory: u64) -> Option<u32> {
    let is_free = |number: &u32| {
        tier.owner(*number).load(SeqCst) == 0 && tier.slot(*number).pend.load(SeqCst) == 0
    };
    let number = (0..tier.owners().len() as u32).find(is_free)?;
    let slot = tier.slot(number);
    slot.reset_figures();
    slot.forget_loads();
    slot.memory.store(memory, SeqCst);
    slot.suspended.store(1, SeqCst);
    slot.version.store(tier.new_version(), SeqCst);
    tier.owner(number).store(owner, SeqCst);
    Some(number)
}

/// Frees the slot of a relation that is gone, and its entries.
pub fn free(tier: &Tier, owner: u64) {
    let Some(number) = tier.assigning(|| {
        let number = find(tier, owner)?;
        tier.slot(number).version.store(tier.new_version(), SeqCst);
        tier.owner(number).store(NOBODY, SeqCst);
        Some(number)
    }) else {
        return;
    };
    // A slot that is nobody's and not free would stay so.
    session::uninterrupted(|| walk::remove_entries(tier, number, Why::Cleared, |_| true));
    tier.assigning(|| tier.owner(number).store(0, SeqCst));
}

/// Frees the slots of relations of this database, and of databases, that are gone although nobody here was
/// told: a standby only replays their DROP. There a slot has no entries but those of a memory cache, which
/// may be evicted at any time, so one that is freed too early costs misses and nothing else. Elsewhere a
/// relation that is not seen may be one that is being made.
pub fn free_gone(tier: &Tier) {
    if !session::in_recovery() {
        return;
    }
    for owner in tier.owners() {
        let owner = owner.load(SeqCst);
        let (database, relation) = (
            Oid::from_u32((owner >> 32) as u32),
            Oid::from_u32(owner as u32),
        );
        let is_there = match database == session::database() {
            true => relation::is_there(relation),
            false => database::is_there(database),
        };
        if owner != 0 && owner != NOBODY && !is_there {
            free(tier, owner);
        }
    }
}

/// Frees the slots of a database that is gone.
pub fn free_database(tier: &Tier, database: Oid) {
    for owner in tier.owners() {
        let owner = owner.load(SeqCst);
        if owner >> 32 == u64::from(database.to_u32()) && owner != NOBODY {
            free(tier, owner);
        }
    }
}
