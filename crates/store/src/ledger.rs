//! What happens to entries: what the caller's ledger is told, and the events that a partition
//! counts.
//!
//! What it is not: sums by cache; those are the caller's, kept from [`EntryEvent`].
//! The rule it guards: an entry that goes is reported with the bytes that it was reported with when
//! it came.

use crate::layout::partition_word;

/// Why an entry went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalCause {
    /// Another value took its place.
    Overwritten,
    /// For want of space.
    Evicted,
    /// Its time had come.
    Expired,
    /// The data behind it changed, or its version is of the past.
    Invalidated,
    /// Someone asked.
    Cleared,
}

/// One entry was stored, or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryEvent {
    /// Of its key.
    pub cache: u32,
    /// Of its header.
    pub version: u64,
    /// Whole granules, header and key included; the same when the entry goes as when it came.
    pub bytes: u64,
    /// The deadline, or `NO_DEADLINE`.
    pub deadline: i64,
    /// Why it went; `None`: it was stored.
    pub removed: Option<RemovalCause>,
}

/// How the entries of a cache fare when room is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The cache holds more than its bound: its entries go first.
    OverBound,
    /// The policy alone decides.
    #[default]
    Plain,
    /// The cache holds no more than its reserve: its entries are passed over.
    Reserved,
}

/// What the caller keeps of entries that come and go. Called under the partition's exclusive lock.
pub trait Ledger {
    /// An entry was stored, or went.
    fn report(&mut self, event: EntryEvent);

    /// Whether a cache may have another rank than [`Rank::Plain`]. Where none has, an eviction reads the
    /// cache of no entry.
    fn has_ranks(&self) -> bool {
        false
    }

    /// The present rank of a cache.
    fn rank(&self, _cache: u32) -> Rank {
        Rank::Plain
    }

    /// Whether the keys of this cache's entries are to be named where they change.
    fn wants_names(&self, _cache: u32) -> bool {
        false
    }

    /// The entry of this key changes, nobody sees it yet: it is stored, gets another deadline, or
    /// goes.
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
        // Readers' counters, from 16 on, lie on another cache line than those of writers.
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
