//! Whether a value that was loaded may be stored: nobody changes its source now, and nobody has
//! changed it since.
//!
//! A writer marks before their commit becomes visible and unmarks after it (`marks`). Between the
//! two a loader reads what is about to be out of date. Guards that nothing is stored which was
//! loaded then: no lease is granted while a writer of the key, or of its cache, pends; and a session that stores
//! without a lease holds a [`LoadToken`] from before it loads: a watch, which is voided as a lease is.

use std::sync::atomic::Ordering::SeqCst;

use super::leases::Lease;
use crate::cache::catalog::registry::{Cache, Storage};
use crate::cache::catalog::sources;
use crate::cache::lease::{held, unverified_after_restart};
use crate::cache::tier::hashed_key::HashedKey;
use crate::cache::tier::slots;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{self, clock, lock, random, transaction};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::lease::Claim;
use crate::pg::shmem::tier::{Tier, tier};

/// Whether the commit of somebody who changes the key or the cache is not visible yet, that of a
/// transaction included which was prepared before the server's start. Asked under
/// the partition's lock: whoever marks the whole cache voids its leases under it after
/// `pending_writers` has risen.
pub fn has_pending_writer(tier: &Tier, cache: &Cache, hash: u64) -> bool {
    let pends = |slot| {
        tier.slot(slot).pending_writers.load(SeqCst) > 0
            || unverified_after_restart::is_suspended(tier, slot)
    };
    (tier.is_marked(hash) && !fault::on(Fault::LeaseWhileKeyPends))
        || (cache.slot(tier).is_some_and(pends) && !fault::on(Fault::LeaseWhileCachePends))
}

/// Whether a writer changes a cache as a whole that had no slot when the writer marked it; it may have one by now.
/// Asked under no lock of the tier, once the lease's record exists: a writer that takes the lock of the cache
/// later voids it.
pub fn is_locked_without_slot(cache: &Cache) -> bool {
    lock::is_marked_without_slot(cache.relation) && !fault::on(Fault::LeaseWhileLocked)
}

/// Entries of a cache were removed by a change that is visible now. A cache without a slot has no
/// record of that, and a new slot counts as one from which entries have just been removed.
pub fn note_removal(tier: &Tier, cache: CacheId) {
    let now = clock::now();
    if let Some(slot) = slots::find(tier, cache) {
        tier.slot(slot).note_removal(now);
    }
}

/// Whether what is loaded must not be stored because this is a standby: what is replayed removes nothing.
/// Asked before the first look, so that it holds for a call that begins before a promotion and ends after it.
pub fn is_replayed(cache: &Cache) -> bool {
    session::in_recovery()
        && cache.storage == Storage::Memory
        && !fault::on(Fault::StandbyStoresReplayed)
        && sources::has_sources(cache.relation)
}

/// Whether a loader reads what nobody has declared out of date, asked when the lease is there: who
/// does so later voids it. With one snapshot for the transaction, which may be older, it does if
/// nothing was committed since; or if nothing was removed since the transaction began. Without
/// shared memory nobody knows of removals: then a cache without dependencies counts as having none.
/// On a standby nobody knows either: what is replayed removes nothing.
pub fn loads_what_is_valid(cache: &Cache) -> bool {
    if !lock::one_snapshot_per_transaction() || fault::on(Fault::OldSnapshotStores) {
        return true;
    }
    if transaction::snapshot_is_of_a_standby() && !fault::on(Fault::StandbySnapshotStores) {
        return false;
    }
    if transaction::snapshot_is_latest() {
        return true;
    }
    let Some(tier) = tier() else {
        return cache.storage != Storage::Memory && !sources::has_sources(cache.relation);
    };
    // A temporary table's entries are this session's alone.
    let slot = cache.slot_or_new(tier);
    let is_older = |slot| tier.slot(slot).removed_at() < transaction::began();
    slot.map_or(cache.temporary, is_older)
}

/// Nobody was changing the key when this was taken; as long as it lasts nobody has.
pub struct LoadToken {
    tier: &'static Tier,
    watch: Lease,
}

impl LoadToken {
    /// Comes before the snapshot that the loader reads with. None while a writer pends, and where the role
    /// has its share of watches. It belongs to the transaction.
    pub fn take(tier: &'static Tier, cache: &Cache, key: HashedKey) -> Option<LoadToken> {
        let hash = key.hash;
        let watch = Lease {
            hash,
            id: random::number().max(1),
        };
        let claim = Claim::of_session(watch.id, cache.id, clock::now());
        let partition = tier.region().partition_of(hash);
        held::watch(watch);
        let watches = tier.change(partition, |_| {
            !has_pending_writer(tier, cache, hash)
                && tier.leases().of(partition).watch(hash, &claim)
        });
        let token = LoadToken { tier, watch };
        (watches && !is_locked_without_slot(cache)).then_some(token)
    }

    /// Comes after the row was written: a writer who marks later finds it.
    pub fn holds(&self) -> bool {
        let holds = || fault::on(Fault::TokenNotAskedAfterStore) || self.holds_here();
        self.tier.read(self.watch.hash, |_| holds())
    }

    /// Whether it holds, asked by who has the partition's lock.
    pub fn holds_here(&self) -> bool {
        let partition = self.tier.region().partition_of(self.watch.hash);
        let leases = self.tier.leases().of(partition);
        leases.is_watching(self.watch.hash, self.watch.id)
    }
}

impl Drop for LoadToken {
    fn drop(&mut self) {
        // After an error the abort ends it.
        if !std::thread::panicking() {
            held::end_watch(self.watch);
        }
    }
}
