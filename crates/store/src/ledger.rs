//! The events that the store reports to its caller when entries are stored or removed, and the counters of a
//! partition.
//!
//! The caller computes the sums for each cache from [`EntryEvent`]. They are exact, because an entry is reported
//! with the same bytes when it is removed as when it was stored.

use crate::layout::partition_word;

/// The reason why an entry was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalCause {
    /// Another value replaced it.
    Overwritten,
    /// Its space was needed.
    Evicted,
    /// Its deadline passed.
    Expired,
    /// The data behind it changed, or its version is no longer current.
    Invalidated,
    /// A caller requested it.
    Cleared,
}

/// An entry that was stored or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryEvent {
    /// The cache of its key.
    pub cache: u32,
    /// The version of its header.
    pub version: u64,
    /// Its size in whole granules, header and key included.
    pub bytes: u64,
    /// The deadline, or `NO_DEADLINE`.
    pub deadline: i64,
    /// Why it was removed; `None` if it was stored.
    pub removed: Option<RemovalCause>,
}

/// How an eviction treats the entries of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The cache holds more than its bound: its entries are evicted first.
    OverBound,
    /// The policy alone decides.
    #[default]
    Plain,
    /// The cache holds no more than its reserve: its entries are passed over.
    Reserved,
}

/// The caller's record of entries. Its functions are called under the partition's exclusive lock.
pub trait Ledger {
    /// Records an entry that was stored or removed.
    fn report(&mut self, event: EntryEvent);

    /// Returns whether any cache may have another rank than [`Rank::Plain`]. If not, an eviction
    /// reads the cache of no entry.
    fn has_ranks(&self) -> bool {
        false
    }

    /// Returns the present rank of a cache.
    fn rank(&self, _cache: u32) -> Rank {
        Rank::Plain
    }

    /// Returns whether the ledger needs the key of each entry of this cache that changes.
    fn wants_names(&self, _cache: u32) -> bool {
        false
    }

    /// Records the key of an entry that is stored, gets another deadline or is removed. Called before any reader can
    /// see the change.
    fn name(&mut self, _event: &EntryEvent, _key: &[u8]) {}
}

impl<F: FnMut(EntryEvent)> Ledger for F {
    #[inline]
    fn report(&mut self, event: EntryEvent) {
        self(event);
    }
}

#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Counter {
    Sets,
    Overwritten,
    Evicted,
    Expired,
    Invalidated,
    Cleared,
    GhostHits,
    Moved,
    BucketEvictions,
    Hits = 16,
    Misses,
}

impl Counter {
    pub(crate) fn at(self) -> usize {
        // Counters that readers write, from 16 on, lie on another cache line than those of writers.
        const { assert!(partition_word::COUNTERS + 16 * 8 == partition_word::READ_COUNTERS) };
        partition_word::COUNTERS + self as usize * 8
    }
}

impl From<RemovalCause> for Counter {
    fn from(cause: RemovalCause) -> Counter {
        match cause {
            RemovalCause::Overwritten => Counter::Overwritten,
            RemovalCause::Evicted => Counter::Evicted,
            RemovalCause::Expired => Counter::Expired,
            RemovalCause::Invalidated => Counter::Invalidated,
            RemovalCause::Cleared => Counter::Cleared,
        }
    }
}
