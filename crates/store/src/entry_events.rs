//! The events that the store reports to its caller when entries are stored or removed, and the counters of a
//! partition.
//!
//! The caller computes sums for each cache from the [`EntryEvent`]s. The sums are exact, because the store reports the
//! same bytes when it stores an entry and when it removes the entry.

use crate::layout::partition_word;

/// The reason why an entry was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalCause {
    /// Another value replaced the entry.
    Overwritten,
    /// Its space was needed.
    Evicted,
    /// Its deadline passed.
    Expired,
    /// The data behind it changed, or its version is no longer current.
    Invalidated,
    /// A caller requested the removal.
    Cleared,
}

/// An entry that was stored or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryEvent {
    /// The cache of the entry's key.
    pub cache: u32,
    /// The version in the entry's header.
    pub version: u64,
    /// The entry's size in bytes, in whole granules, header and key included.
    pub bytes: u64,
    /// The deadline, or `NO_DEADLINE`.
    pub deadline: i64,
    /// The cause of the removal; `None` if the entry was stored.
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
    /// The cache holds no more than its reserve: an eviction skips its entries.
    Reserved,
}

/// The caller's record of entries. The store calls its functions under the partition's exclusive lock.
pub trait Ledger {
    /// Records an entry that was stored or removed.
    fn report(&mut self, event: EntryEvent);

    /// Returns whether any cache may have a rank other than [`Rank::Plain`]. If it returns false, an eviction does not
    /// read the caches of entries.
    fn has_ranks(&self) -> bool {
        false
    }

    /// Returns the present rank of a cache.
    fn rank(&self, _cache: u32) -> Rank {
        Rank::Plain
    }

    /// Returns whether `name` must receive the key of each changed entry of this cache.
    fn wants_names(&self, _cache: u32) -> bool {
        false
    }

    /// Records the key of an entry that is stored, gets another deadline or is removed. The store calls this before any
    /// reader can see the change.
    fn name(&mut self, _event: &EntryEvent, _key: &[u8]) {}
}

impl<F: FnMut(EntryEvent)> Ledger for F {
    #[inline]
    fn report(&mut self, event: EntryEvent) {
        self(event);
    }
}

/// The counters of a partition, in the order of their words.
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
        // The counters from 16 on, which readers change, are not on a cache line of writers' counters.
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
