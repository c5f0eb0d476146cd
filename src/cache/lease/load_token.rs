//! Whether a value that was loaded may be stored: nobody changes its source now, and nobody has
//! changed it since.
//!
//! A writer marks before their commit becomes visible and unmarks after it (`marks`). Between the
//! two a loader reads what is about to be out of date. Guards that nothing is stored which was
//! loaded then: no lease is granted while a writer of the key, of its cache or without a slot
//! pends; and who stores without a lease, which a mark could void, holds a [`LoadToken`] from
//! before they load.

use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::{PartitionRef, Stripe};

use super::unproven;
use crate::cache::catalog::registry::{Cache, Storage};
use crate::cache::catalog::sources;
use crate::cache::tier::hashed_key::HashedKey;
use crate::cache::tier::slots;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{clock, lock, transaction};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::tier::{Tier, tier};

/// Whether the commit of somebody who changes the key or the cache is not visible yet, that of a
/// transaction included which was prepared before the server's start. Asked under
/// the partition's lock: whoever marks the whole cache voids its leases under it after
/// `pending_writers` has risen.
pub fn has_pending_writer(tier: &Tier, cache: &Cache, stripe: Stripe) -> bool {
    let pends = |slot| {
        tier.slot(slot).pending_writers.load(SeqCst) > 0 || unproven::is_suspended(tier, slot)
    };
    (stripe.pending_writers > 0 && !fault::on(Fault::LeaseWhileKeyPends))
        || (tier.control().global_pending_writers.load(SeqCst) > 0
            && !fault::on(Fault::LeaseWhileGlobalPends))
        || (cache.slot(tier).is_some_and(pends) && !fault::on(Fault::LeaseWhileCachePends))
}

/// Entries of a cache were removed by a change that is visible now.
pub fn note_removal(tier: &Tier, cache: CacheId) {
    let now = clock::now();
    match slots::find(tier, cache) {
        Some(slot) => tier.slot(slot).note_removal(now),
        None => drop(tier.control().removed_at.fetch_max(now, SeqCst)),
    }
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
    let of_cache = cache.slot(tier).map(|slot| tier.slot(slot).removed_at());
    let last = of_cache
        .unwrap_or(0)
        .max(tier.control().removed_at.load(SeqCst));
    last < transaction::began()
}

/// Nobody was changing the key when this was taken; as long as it lasts nobody has.
#[derive(Clone, Copy)]
pub struct LoadToken {
    tier: &'static Tier,
    hash: u64,
    seen: Seen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    stripe: Stripe,
    /// The slot and the version of the cache, which a mark of the whole cache changes.
    cache: Option<(u32, u64)>,
    global_epoch: u64,
}

impl LoadToken {
    /// Comes before the snapshot that the loader reads with. None while a writer pends.
    pub fn take(tier: &'static Tier, cache: &Cache, key: HashedKey) -> Option<LoadToken> {
        let hash = key.hash;
        let seen = tier.read(hash, |partition| see(tier, cache, partition.stripe(hash)))?;
        Some(LoadToken { tier, hash, seen })
    }

    /// Comes after the row was written: a writer who marks later finds it.
    pub fn holds(&self, cache: &Cache) -> bool {
        fault::on(Fault::TokenNotAskedAfterStore)
            || self
                .tier
                .read(self.hash, |partition| self.holds_in(cache, &partition))
    }

    /// Whether it holds, asked by who has the partition's lock.
    pub fn holds_in(&self, cache: &Cache, partition: &PartitionRef) -> bool {
        see(self.tier, cache, partition.stripe(self.hash)) == Some(self.seen)
    }
}

/// None while a writer pends. What a writer raises first is looked at last.
fn see(tier: &Tier, cache: &Cache, stripe: Stripe) -> Option<Seen> {
    let global_epoch = match fault::on(Fault::LoadTokenGlobalNotCompared) {
        true => 0,
        false => tier.control().global_epoch.load(SeqCst),
    };
    let of_slot = |slot| (slot, tier.slot(slot).version.load(SeqCst));
    let cache_seen = cache
        .slot(tier)
        .map(of_slot)
        .filter(|_| !fault::on(Fault::LoadTokenVersionNotCompared));
    let stripe_seen = match fault::on(Fault::LoadTokenStripeNotCompared) {
        true => Stripe::default(),
        false => stripe,
    };
    let seen = Seen {
        stripe: stripe_seen,
        cache: cache_seen,
        global_epoch,
    };
    (!has_pending_writer(tier, cache, stripe)).then_some(seen)
}
