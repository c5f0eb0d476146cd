//! Statistics: the sums of the partitions' counters, and the use of each byte of a region.
//!
//! The statistics account for every byte, and reading them needs no lock. The caller keeps the counters for each cache,
//! with its ledger.

use crate::entry_events::Counter;
use crate::layout::{GRANULE, PAGE, partition_word, queue_word};
use crate::region::Region;

/// Sums over partitions since the region was initialized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of present entries.
    pub entries: u64,
    /// The bytes of the present entries, in whole granules: the sum of the ledger's events.
    pub bytes: u64,
    /// The number of values that `get` copied.
    pub hits: u64,
    /// The number of all other calls of `get`, except calls with a buffer that was too small.
    pub misses: u64,
    /// The number of stored entries, overwrites included.
    pub sets: u64,
    /// The number of entries that another value of their key replaced. This counter and the following four count
    /// removals by [`crate::RemovalCause`].
    pub overwritten: u64,
    /// The number of entries removed because of space.
    pub evicted: u64,
    /// The number of entries removed because their deadline had passed.
    pub expired: u64,
    /// The number of entries removed because their data changed.
    pub invalidated: u64,
    /// The number of entries removed because a caller cleared them.
    pub cleared: u64,
    /// The number of sets of a key that was evicted a short time before, as its ghost shows.
    pub ghost_hits: u64,
    /// The number of runs that were moved to empty a page.
    pub moved: u64,
    /// The number of evictions because both buckets of a key were full; a part of `evicted`.
    pub bucket_evictions: u64,
}

/// The use of the region's bytes; the parts add up to `region`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The whole region: `Layout::region_bytes`.
    pub region: u64,
    /// Index, stripes, page table, queue heads, counters.
    pub bookkeeping: u64,
    /// The bytes of entries, in whole granules.
    pub entries: u64,
    /// Free granules in pages that hold entries.
    pub holes: u64,
    /// The bytes of pages that are in the pool, or that a writer has reserved.
    pub free: u64,
}

impl Region {
    /// Returns the sums over all partitions. Reads without locks: each number is correct, but two numbers may be from
    /// different moments.
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

    /// Sets all statistics to zero, except the number and bytes of present entries.
    pub fn reset_stats(&self) {
        for id in 0..self.layout.partitions {
            for at in (partition_word::COUNTERS..partition_word::HOLE_HEADS).step_by(8) {
                self.store(self.partition_at(id) + at, 0);
            }
        }
    }

    /// Returns the use of each byte of the region. A page that changes its owner during the call may be counted twice
    /// or not at all. Such a page moves bytes between the parts, but never makes a part negative.
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
