//! Which cache, for the whole server: what slots, leases and the worker's records know a cache by.

use std::sync::atomic::{AtomicU64, Ordering};

use pgrx::pg_sys::Oid;

use crate::pg::session;

/// A cache's database and relation in one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheId(u64);

impl CacheId {
    /// No cache has this id. It stands in a slot that is being emptied.
    pub const VACATED: CacheId = CacheId(u64::MAX);

    /// The cache of a relation in this session's database.
    #[inline]
    pub fn of(relation: Oid) -> CacheId {
        CacheId::new(session::database(), relation)
    }

    #[inline]
    fn new(database: Oid, relation: Oid) -> CacheId {
        CacheId(u64::from(database.to_u32()) << 32 | u64::from(relation.to_u32()))
    }

    pub fn database(self) -> Oid {
        Oid::from_u32((self.0 >> 32) as u32)
    }

    pub fn relation(self) -> Oid {
        Oid::from_u32(self.0 as u32)
    }

    /// The id with its bits mixed, for a hash or for a place in a table; the high bits are the
    /// best.
    #[inline]
    pub fn mixed(self) -> u64 {
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// The id as a number that can be kept, and made an id again by [`CacheId::from_bits`].
    pub fn bits(self) -> u64 {
        self.0
    }

    pub fn from_bits(bits: u64) -> CacheId {
        CacheId(bits)
    }

    /// A seed for a hash that is the same in every process, and over restarts.
    pub fn seed(self) -> u64 {
        self.0
    }
}

/// A place in shared memory for a cache's id. Shared memory begins zeroed: nobody's.
#[repr(transparent)]
pub struct AtomicCacheId(AtomicU64);

impl AtomicCacheId {
    const NOBODY: u64 = 0;

    /// None where it is nobody's.
    pub fn load(&self, order: Ordering) -> Option<CacheId> {
        let bits = self.0.load(order);
        (bits != Self::NOBODY).then_some(CacheId(bits))
    }

    /// None makes it nobody's.
    pub fn store(&self, cache: Option<CacheId>, order: Ordering) {
        let bits = cache.map_or(Self::NOBODY, |cache| cache.0);
        self.0.store(bits, order);
    }

    /// Whether it is this cache's.
    #[inline]
    pub fn is(&self, cache: CacheId, order: Ordering) -> bool {
        self.0.load(order) == cache.0
    }

    /// Whether it is this cache's, or was nobody's and is this cache's now.
    pub fn claim(&self, cache: CacheId, order: Ordering) -> bool {
        match self.0.load(order) {
            Self::NOBODY => self
                .0
                .compare_exchange(Self::NOBODY, cache.0, order, order)
                .map_or_else(|present| present == cache.0, |_| true),
            present => present == cache.0,
        }
    }
}
