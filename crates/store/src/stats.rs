//! Statistics: the sums of the partitions' counters, and the use of each byte of a region.
//!
//! Every byte is accounted for, and reading the statistics needs no lock. Counters for each cache are not here; the
//! caller keeps them from its ledger.

use crate::layout::{GRANULE, PAGE, partition_word, queue_word};
use crate::ledger::Counter;
use crate::region::Region;

/// Sums over partitions since the region was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries held now.
    pub entries: u64,
    /// The bytes of these entries, in whole granules: the sum of the ledger's events.
    pub bytes: u64,
    /// Values that `get` copied.
    pub hits: u64,
    /// All other calls of `get`, except those whose buffer was too small.
    pub misses: u64,
    /// Entries stored, overwrites included.
    pub sets: u64,
    /// Entries that were replaced by another value of their key. This and the following four count removals by
    /// [`crate::RemovalCause`].
    pub overwritten: u64,
    /// Entries removed because of space.
    pub evicted: u64,
    /// Entries removed because their deadline had passed.
    pub expired: u64,
    /// Entries removed because the data behind them changed.
    pub invalidated: u64,
    /// Entries removed because a caller cleared them.
    pub cleared: u64,
    /// Sets of a key that had been evicted a short time before, as its ghost shows.
    pub ghost_hits: u64,
    /// Runs that were moved in order to empty a page.
    pub moved: u64,
    /// Evictions because both buckets of a key were full; part of `evicted`.
    pub bucket_evictions: u64,
}

/// How the bytes of the region are used; the parts add up to `region`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The whole region: `Layout::region_bytes`.
    pub region: u64,
    /// Index, stripes, page table, queue heads, counters.
    pub bookkeeping: u64,
    /// Entries in whole granules.
    pub entries: u64,
    /// Free granules in pages that hold entries.
    pub holes: u64,
    /// Pages in the pool, or reserved by a writer at this moment.
    pub free: u64,
}

impl Region {
    /// Adds up without locks: each number is correct, but two of them may be from different moments.
    pub fn stats(&self) -> Stats {
        (0..self.layout.partitions).fold(Stats::default(), |sum, id| sum.plus(&self.stats_of(id)))
    }

    /// Returns the statistics of one partition.
    pub fn stats_of(&self, id: u32) -> Stats {
        let base = self.partition_at(id & (self.layout.partitions - 1));
        let queues = |word: usize| {
            self.load(base + partition_word::SMALL + word)
                + self.load(base + partition_word::MAIN + word)
        };
        let counter = |counter: Counter| self.load(base + counter.at());
        Stats {
            entries: queues(queue_word::COUNT),
            bytes: queues(queue_word::GRANULES) * GRANULE as u64,
            hits: counter(Counter::Hits),
            misses: counter(Counter::Misses),
            sets: counter(Counter::Sets),
            overwritten: counter(Counter::Overwritten),
            evicted: counter(Counter::Evicted),
            expired: counter(Counter::Expired),
            invalidated: counter(Counter::Invalidated),
            cleared: counter(Counter::Cleared),
            ghost_hits: counter(Counter::GhostHits),
            moved: counter(Counter::Moved),
            bucket_evictions: counter(Counter::BucketEvictions),
        }
    }

    /// Sets all statistics to zero; the current entries stay counted.
    pub fn reset_stats(&self) {
        for id in 0..self.layout.partitions {
            for at in (partition_word::COUNTERS..partition_word::HOLE_HEADS).step_by(8) {
                self.store(self.partition_at(id) + at, 0);
            }
        }
    }

    /// Counts each byte once. A page that changes its owner while the counters are read may be counted twice or not
    /// at all, which moves bytes between the parts but never makes one of them negative.
    pub fn usage(&self) -> Usage {
        let counted = |word: usize, bytes: usize| {
            (0..self.layout.partitions)
                .map(|id| self.load(self.partition_at(id) + word) * bytes as u64)
                .sum::<u64>()
        };
        let arena = self.layout.arena_bytes() as u64;
        let values = counted(partition_word::VALUE_PAGES, PAGE);
        let held = arena.min(counted(partition_word::RUN_PAGES, PAGE) + values);
        let entries = held.min(counted(partition_word::RUN_GRANULES, GRANULE) + values);
        Usage {
            region: self.layout.region_bytes() as u64,
            bookkeeping: self.layout.arena_at as u64,
            entries,
            holes: held - entries,
            free: arena - held,
        }
    }
}

impl Stats {
    fn plus(&self, other: &Stats) -> Stats {
        Stats {
            entries: self.entries + other.entries,
            bytes: self.bytes + other.bytes,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            sets: self.sets + other.sets,
            overwritten: self.overwritten + other.overwritten,
            evicted: self.evicted + other.evicted,
            expired: self.expired + other.expired,
            invalidated: self.invalidated + other.invalidated,
            cleared: self.cleared + other.cleared,
            ghost_hits: self.ghost_hits + other.ghost_hits,
            moved: self.moved + other.moved,
            bucket_evictions: self.bucket_evictions + other.bucket_evictions,
        }
    }
}
