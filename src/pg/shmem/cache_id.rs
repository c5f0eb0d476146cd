//! The server-wide id of a cache, which identifies it in shared memory: in slots, leases and the worker's state.

use std::sync::atomic::{AtomicU64, Ordering};

use pgrx::pg_sys::Oid;

use crate::pg::session;

/// A cache's database and relation in one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheId(u64);

impl CacheId {
    /// An id that no cache has. It marks a slot that a process is emptying.
    pub const VACATED: CacheId = CacheId(u64::MAX);

    /// Returns the id of a relation of this session's database as a cache.
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

    /// Returns the id with its bits mixed, for a hash or a position in a table. The high bits are the best mixed.
    #[inline]
    pub fn mixed(self) -> u64 {
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Returns the id as a number, which [`CacheId::from_bits`] converts back.
    pub fn bits(self) -> u64 {
        self.0
    }

    pub fn from_bits(bits: u64) -> CacheId {
        CacheId(bits)
    }

    /// Returns a seed for a hash that is the same in every process and across restarts.
    pub fn seed(self) -> u64 {
        self.0
    }
}

/// A place in shared memory for a cache's id. Zeros, the initial content of shared memory, mean that no cache has the
/// place.
#[repr(transparent)]
pub struct AtomicCacheId(AtomicU64);

impl AtomicCacheId {
    const NOBODY: u64 = 0;

    /// Returns the id of the cache that has the place; None if no cache has it.
    pub fn load(&self, order: Ordering) -> Option<CacheId> {
        let bits = self.0.load(order);
        (bits != Self::NOBODY).then_some(CacheId(bits))
    }

    /// Stores a cache's id; None frees the place.
    pub fn store(&self, cache: Option<CacheId>, order: Ordering) {
        let bits = cache.map_or(Self::NOBODY, |cache| cache.0);
        self.0.store(bits, order);
    }

    /// Returns whether this cache has the place.
    #[inline]
    pub fn is(&self, cache: CacheId, order: Ordering) -> bool {
        self.0.load(order) == cache.0
    }

    /// Takes the place for this cache if it is free. Returns whether the cache has the place now.
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
