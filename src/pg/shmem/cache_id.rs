//! The server-wide id of a cache, which identifies it in shared memory: in slots, leases and the worker's state.

use std::sync::atomic::{AtomicU64, Ordering};

use pgrx::pg_sys::Oid;

use crate::pg::session;

/// A cache's database and relation in one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheId(u64);

impl CacheId {
    /// The id of no cache. It marks a slot that a process is emptying.
    pub const VACATED: CacheId = CacheId(u64::MAX);

    /// Returns the cache id of a relation in this session's database.
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

    /// Returns the id with its bits mixed, for a hash or an index into an array. Callers use the high bits, which are
    /// mixed best.
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

/// A word in shared memory that holds a cache's id. Zero, the initial content of shared memory, means that the word is
/// free.
#[repr(transparent)]
pub struct AtomicCacheId(AtomicU64);

impl AtomicCacheId {
    const NOBODY: u64 = 0;

    /// Returns the id in the word, or None if the word is free.
    pub fn load(&self, order: Ordering) -> Option<CacheId> {
        let bits = self.0.load(order);
        (bits != Self::NOBODY).then_some(CacheId(bits))
    }

    /// Stores a cache's id; None frees the word.
    pub fn store(&self, cache: Option<CacheId>, order: Ordering) {
        let bits = cache.map_or(Self::NOBODY, |cache| cache.0);
        self.0.store(bits, order);
    }

    /// Returns whether the word holds this cache's id.
    #[inline]
    pub fn is(&self, cache: CacheId, order: Ordering) -> bool {
        self.0.load(order) == cache.0
    }

    /// Stores this cache's id if the word is free. Returns whether the word holds the cache's id now.
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
