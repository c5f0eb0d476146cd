//! Load tokens: each proves that a loaded value may be stored, because no transaction was changing its source when the
//! token was taken, and none has changed it since.
//!
//! A writer marks before its commit becomes visible and unmarks after it (`marks`). A loader that reads between the
//! two reads a value that is about to be out of date. Guards that no such value is stored. No lease is granted while a
//! writer of the key, or of its cache, is pending. A session that stores without a lease holds a [`LoadToken`] from
//! before it loads: a watch on the key, which a writer voids as it voids a lease.

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

/// Returns whether a commit that changes the key or the cache is not visible yet, including that of a transaction
/// that was prepared before the server's start. The caller holds the partition's lock: a session that marks the whole
/// cache voids its leases under that lock after `pending_writers` has risen.
pub fn has_pending_writer(tier: &Tier, cache: &Cache, hash: u64) -> bool {
    let pends = |slot| {
        tier.slot(slot).pending_writers.load(SeqCst) > 0
            || unverified_after_restart::is_suspended(tier, slot)
    };
    (tier.is_marked(hash) && !fault::on(Fault::LeaseWhileKeyPends))
        || (cache.slot(tier).is_some_and(pends) && !fault::on(Fault::LeaseWhileCachePends))
}

/// Returns whether a writer changes a whole cache that had no slot when the writer marked it; by now the cache may
/// have one. The caller holds no lock of the tier, and the record of the lease exists already, so that a writer that
/// locks the cache later voids it.
pub fn is_locked_without_slot(cache: &Cache) -> bool {
    lock::is_marked_without_slot(cache.relation) && !fault::on(Fault::LeaseWhileLocked)
}

/// Notes that entries of a cache were removed by a change that is visible now. Does nothing for a cache without a
/// slot, because a new slot counts as one from which entries have just been removed.
pub fn note_removal(tier: &Tier, cache: CacheId) {
    let now = clock::now();
    if let Some(slot) = slots::find(tier, cache) {
        tier.slot(slot).note_removal(now);
    }
}

/// Returns whether a loaded value must not be stored because this is a standby, where replayed changes remove
/// nothing. Checked before the first look, so that it holds for a call that begins before a promotion and ends after
/// it.
pub fn is_replayed(cache: &Cache) -> bool {
    session::in_recovery()
        && cache.storage == Storage::Memory
        && !fault::on(Fault::StandbyStoresReplayed)
        && sources::has_sources(cache.relation)
}

/// Returns whether a loader reads valid data. Checked once the lease is held, because a session that invalidates the
/// data later voids the lease. A transaction with one snapshot may read older data, which is valid if nothing was
/// committed since the snapshot, or if nothing was removed since the transaction began. Without shared memory removals
/// are not recorded; then a table cache without dependencies counts as valid. A standby does not record removals
/// either, because replayed changes remove nothing.
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

/// Proves that no transaction was changing the key when the token was taken, and that none has changed it as long as
/// the token holds.
pub struct LoadToken {
    tier: &'static Tier,
    watch: Lease,
}

impl LoadToken {
    /// Takes a token, before the snapshot with which the loader reads. None while a writer is pending, and when the
    /// role has used up its share of watches. The token belongs to the transaction.
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

    /// Returns whether the token still holds. Checked after the row was written: a writer that marks later finds the
    /// row.
    pub fn holds(&self) -> bool {
        let holds = || fault::on(Fault::TokenNotAskedAfterStore) || self.holds_here();
        self.tier.read(self.watch.hash, |_| holds())
    }

    /// Returns whether the token holds; the caller holds the partition's lock.
    pub fn holds_here(&self) -> bool {
        let partition = self.tier.region().partition_of(self.watch.hash);
        let leases = self.tier.leases().of(partition);
        leases.is_watching(self.watch.hash, self.watch.id)
    }
}

impl Drop for LoadToken {
    fn drop(&mut self) {
        // After an error the abort ends the watch.
        if !std::thread::panicking() {
            held::end_watch(self.watch);
        }
    }
}
