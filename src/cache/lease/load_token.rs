//! A load token tells whether a loaded value may be stored. It holds as long as two facts are true: no transaction was
//! changing the value's source when the token was taken, and none has changed the source since.
//!
//! A writer marks its keys before its commit becomes visible, and unmarks them afterwards (`marks`). A loader that
//! reads between the two steps reads a value that is about to be out of date. No session stores such a value, for two
//! reasons. No lease is granted while a writer of the key, or of its cache, is pending. And a session that stores
//! without a lease takes a [`LoadToken`] before it loads: a watch on the key, which a writer voids as it voids a lease.

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

/// Returns whether a commit that changes the key or the cache is not visible yet. The commit of a transaction that was
/// prepared before the server's start counts, too. The caller holds the partition's lock, because a session that marks
/// the whole cache first raises `pending_writers` and then voids the leases of the cache under that lock.
pub fn has_pending_writer(tier: &Tier, cache: &Cache, hash: u64) -> bool {
    let pends = |slot| {
        tier.slot(slot).pending_writers.load(SeqCst) > 0
            || unverified_after_restart::is_suspended(tier, slot)
    };
    (tier.is_marked(hash) && !fault::on(Fault::LeaseWhileKeyPends))
        || (cache.slot(tier).is_some_and(pends) && !fault::on(Fault::LeaseWhileCachePends))
}

/// Returns whether a writer is changing the whole cache and found no slot when it marked the cache; the cache may have
/// a slot now. The caller holds no lock of the tier. The record of the caller's lease exists already, so that a writer
/// that locks the cache later voids the lease.
pub fn is_locked_without_slot(cache: &Cache) -> bool {
    lock::is_marked_without_slot(cache.relation) && !fault::on(Fault::LeaseWhileLocked)
}

/// Notes that a visible change has removed entries of a cache. Does nothing for a cache without a slot, because a new
/// slot counts as if entries had just been removed.
pub fn note_removal(tier: &Tier, cache: CacheId) {
    let now = clock::now();
    if let Some(slot) = slots::find(tier, cache) {
        tier.slot(slot).note_removal(now);
    }
}

/// Returns whether this is a standby and the cache's source is replayed. Replayed changes remove no entries, so a
/// loaded value must not be stored. A call checks this before its first lookup, so that the result also holds if the
/// call begins before a promotion and ends after it.
pub fn is_replayed(cache: &Cache) -> bool {
    session::in_recovery()
        && cache.storage == Storage::Memory
        && !fault::on(Fault::StandbyStoresReplayed)
        && sources::has_sources(cache.relation)
}

/// Returns whether a loader reads valid data. Call this under the lease, because a session that invalidates the data
/// later voids the lease.
///
/// A transaction with one snapshot may read older data. The data are valid if nothing was committed since the snapshot,
/// or if no entry was removed since the transaction began. Without shared memory removals are not recorded; then a
/// table cache without dependencies counts as valid. A standby records no removals either, because replayed changes
/// remove nothing, so data read with a snapshot of a standby never count as valid.
pub fn loads_valid_values(cache: &Cache) -> bool {
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
    // No other session changes the entries of a temporary table.
    let slot = cache.slot_or_new(tier);
    let is_older = |slot| tier.slot(slot).removed_at() < transaction::began();
    slot.map_or(cache.temporary, is_older)
}

/// The token of a load. As long as it holds, no transaction has changed the key after the token was taken. None was
/// changing the key at that moment either, because no token is granted while a writer is pending.
pub struct LoadToken {
    tier: &'static Tier,
    watch: Lease,
}

impl LoadToken {
    /// Takes a token. The caller must take the loader's snapshot afterwards. Returns None while a writer is pending, or
    /// if the role has used up its share of watches. The token ends with the transaction at the latest.
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

    /// Returns whether the token still holds. Call this after the row is written, because a writer that marks the key
    /// later finds the row.
    pub fn holds(&self) -> bool {
        let holds = || fault::on(Fault::TokenNotCheckedAfterStore) || self.holds_here();
        self.tier.read(self.watch.hash, |_| holds())
    }

    /// Returns whether the token still holds. The caller holds the partition's lock.
    pub fn holds_here(&self) -> bool {
        let partition = self.tier.region().partition_of(self.watch.hash);
        let leases = self.tier.leases().of(partition);
        leases.is_watching(self.watch.hash, self.watch.id)
    }
}

impl Drop for LoadToken {
    fn drop(&mut self) {
        // After an error, the abort of the transaction ends the watch.
        if !std::thread::panicking() {
            held::end_watch(self.watch);
        }
    }
}
