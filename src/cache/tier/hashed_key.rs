//! [`HashedKey`]: a key with its hash over database, relation and key. The tier uses the hash to find the entry.
//!
//! A call hashes its key once, at its beginning, and passes the hash on.

use std::sync::atomic::Ordering::Relaxed;

use pgcache_store::Key as HotKey;

use crate::cache::model::key::Key;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::tier::{Tier, tier};

/// A key of one cache, and its hash. Without a tier the hash is 0 and unused.
#[derive(Clone, Copy)]
pub struct HashedKey {
    pub key: Key,
    pub hash: u64,
}

impl HashedKey {
    #[inline]
    pub fn of(cache: CacheId, key: Key) -> HashedKey {
        let hash = tier().map_or(0, |tier| hash(tier, cache, key.bytes()));
        HashedKey { key, hash }
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.key.bytes()
    }

    /// Returns the key in the form of the store, for the cache that has the slot.
    #[inline]
    pub fn in_slot(&self, slot: u32) -> HotKey<'_> {
        HotKey {
            hash: self.hash,
            cache: slot,
            bytes: self.key.bytes(),
        }
    }

    /// Prefetches the key's part of the index. In a large tier a lookup mostly waits for memory, and the call can check
    /// the privileges during that wait. Changes nothing, and reveals nothing to the caller.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(tier) = tier() {
            tier.region().prefetch_buckets(self.hash);
        }
    }
}

/// Prefetches the index for several keys and then their entries, so that their memory is already being loaded at the
/// first lookup.
pub fn prefetch_all(keys: &[HashedKey]) {
    let Some(tier) = tier() else {
        return;
    };
    for key in keys {
        tier.region().prefetch_buckets(key.hash);
    }
    for key in keys {
        tier.region().prefetch_entry(key.hash);
    }
}

/// Hashes these bytes and returns the key in the form of the store.
#[inline]
pub fn hot_key<'k>(tier: &Tier, cache: CacheId, slot: u32, bytes: &'k [u8]) -> HotKey<'k> {
    HotKey {
        hash: hash(tier, cache, bytes),
        cache: slot,
        bytes,
    }
}

/// Hashes a key. The seed is new at each start of the server, so that no client can choose keys that collide.
#[inline]
fn hash(tier: &Tier, cache: CacheId, bytes: &[u8]) -> u64 {
    let seed = tier.control().seed.load(Relaxed);
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed ^ cache.mixed())
}
