//! Operations on the lease records in the tier: store under a lease, void it, release it. The records themselves are
//! in `pg::shmem::lease`.
//!
//! Leases are voided when an entry of a memory cache changes, and by `commit` before and after the commit of a change
//! to a table.

use crate::cache::tier::hashed_key::HashedKey;
use crate::error::Error;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::lease::{Partition, my_process};
use crate::pg::shmem::tier::{Tier, tier};

/// The hash of a key and the id of its lease, which together identify the lease in the tier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub hash: u64,
    pub id: u64,
}

/// Returns the lease of a key with this id. Returns None for an id that no lease has. Raises 55000 without a tier.
pub fn named(key: HashedKey, id: i64) -> Result<Option<Lease>, Error> {
    tier().ok_or(Error::NoLeases)?;
    let hash = key.hash;
    let id = u64::try_from(id).ok().filter(|&id| id != 0);
    Ok(id.map(|id| Lease { hash, id }))
}

/// Notes that this transaction writes the value. Returns false when the lease is lost.
pub fn store(lease: Lease) -> bool {
    let now = clock::now();
    at(lease, |leases| {
        leases.store(lease.hash, lease.id, my_process(), now)
    })
}

/// Returns whether a change of the entry has voided the lease since [`store`].
pub fn is_void(lease: Lease) -> bool {
    at(lease, |leases| leases.is_void(lease.hash, lease.id))
}

/// Returns whether a lease is still valid. The caller holds the partition's lock.
pub fn holds(tier: &Tier, lease: Lease, now: Timestamp) -> bool {
    let partition = tier.region().partition_of(lease.hash);
    let leases = tier.leases().of(partition);
    leases.holds(lease.hash, lease.id, now)
}

/// Ends a lease and wakes the sessions that wait for it. Returns whether the lease was valid.
pub fn end(lease: Lease) -> bool {
    let now = clock::now();
    let good = at(lease, |leases| {
        let good = leases.holds(lease.hash, lease.id, now);
        leases.release(lease.hash, lease.id);
        good
    });
    wake(lease);
    good
}

/// Ends a watch, unless it was voided.
pub fn end_watch(watch: Lease) {
    at(watch, |leases| leases.end_watch(watch.hash, watch.id));
}

/// Makes a lease valid again after the transaction that stored under it has rolled back, unless the lease was voided.
pub fn take_back(lease: Lease) {
    at(lease, |leases| leases.take_back(lease.hash, lease.id));
    wake(lease);
}

/// Runs `change` under the lock of the lease's partition. Returns the default without a tier.
fn at<R: Default>(lease: Lease, change: impl FnOnce(&Partition) -> R) -> R {
    let Some(tier) = tier() else {
        return R::default();
    };
    let partition = tier.region().partition_of(lease.hash);
    let leases = tier.leases().of(partition);
    tier.change(partition, |_| change(&leases))
}

fn wake(lease: Lease) {
    if let Some(tier) = tier() {
        wake_waiting(tier, lease.hash);
    }
}

/// Voids the lease of a key. The caller holds the lock of the key's partition exclusively. If this function returns
/// true, the caller must call [`wake_waiting`] afterwards.
pub fn void(tier: &Tier, hash: u64) -> bool {
    if fault::on(Fault::MarkVoidsNoLease) {
        return false;
    }
    tier.leases()
        .of(tier.region().partition_of(hash))
        .void(hash)
}

/// Wakes the sessions that wait for the lease of a key.
pub fn wake_waiting(tier: &Tier, hash: u64) {
    tier.leases().wake(tier.region().partition_of(hash));
}

/// Voids all leases of a cache.
pub fn void_all(tier: &Tier, cache: CacheId) {
    if fault::on(Fault::CacheVoidsNoLeases) {
        return;
    }
    for partition in 0..tier.partitions() {
        let leases = tier.leases().of(partition);
        if !leases.is_empty() && tier.change(partition, |_| leases.void_all(cache)) {
            tier.leases().wake(partition);
        }
    }
}
