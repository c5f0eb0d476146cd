//! A slot: a cache's record in the hot tier, with its version, marks and counters, which all backends share.
//!
//! `cache::tier::slots` assigns slots to caches. A slot consists of atomics in shared memory, which begins zeroed.
//! Backends read and change the atomics with or without a lock: the marks in the order that `cache::commit::changes`
//! explains, the counters in any order.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use pgcache_store::{EntryEvent, NO_DEADLINE, Rank, RemovalCause};
use pgrx::pg_sys;

/// The number of groups of counters. Several groups keep backends from contending for one cache line.
const SHARDS: usize = 8;

/// Events that backends count for each cache.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    HotHits,
    TableHits,
    Misses,
    Sets,
    Deletes,
    Expired,
    /// Rows removed because the cache had more entries than `max_entries`.
    Trimmed,
}

/// A cache's limits in the hot tier: the bytes that it may hold at most, and the bytes that are reserved for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// 0 means no bound.
    pub max_bytes: u64,
    pub reserve: u64,
}

/// The shared state of one cache.
#[repr(C, align(64))]
pub struct Slot {
    /// The version of the cache's current content; an entry with another version counts as removed. All slots take
    /// versions from one counter, so no version is reused.
    pub version: AtomicU64,
    /// The number of marks on the whole cache: transactions that have changed it and whose outcome is not yet visible.
    pub pending_writers: AtomicU32,
    /// If 1, no session may fill the cache until a session has checked the cache's triggers under a lock.
    pub suspended: AtomicU32,
    /// If 1, a transaction that was prepared before the server's start may have changed the cache. The restart lost the
    /// transaction's marks, and no session has yet verified that the transaction is decided or did not change the
    /// cache.
    pub unproven: AtomicU32,
    /// If 1, this memory cache's entries may be out of date, and no session has opened the slot yet. Set when a standby
    /// takes the slot, because WAL replay removes no entry there, and when the server's start restores the slot's
    /// entries. Always 0 for a table.
    pub recovered: AtomicU32,
    /// The id of the memory cache that keeps its entries in this slot; 0 if the slot holds copies of a table's entries.
    pub memory_id: AtomicU64,
    /// A bit mask of the processes that track changes of the cache's entries.
    pub trackers: AtomicU64,
    /// The time at which an entry was last removed because its source was reported as changed.
    removed_at: AtomicI64,
    pub entries: AtomicI64,
    pub bytes: AtomicI64,
    /// The bound from the cache's definition; 0 means none.
    max_bytes: AtomicU64,
    /// The reserve from the cache's definition; 0 means none.
    reserve: AtomicU64,
    /// The part of the reserve that is in force. It may be less than the reserve, because all reserves together hold at
    /// most half of the hot tier.
    held: AtomicU64,
    /// The number of entries with a deadline.
    expiring: AtomicI64,
    /// The sum of these deadlines in seconds.
    deadlines: AtomicI64,
    /// The mean time that loaders of this cache take, in microseconds.
    load_time: AtomicU64,
    evicted: AtomicU64,
    invalidated: AtomicU64,
    expired: AtomicU64,
    counters: [Counters; SHARDS],
}

#[repr(C, align(64))]
struct Counters([AtomicU64; 8]);

impl Slot {
    /// Returns whether the slot holds copies of a table's entries.
    #[inline]
    pub fn is_table(&self) -> bool {
        self.memory_id.load(Ordering::SeqCst) == 0
    }

    /// Returns whether each change of a row of the cache's table is certain to remove the row's entry from the slot.
    /// Returns false while the triggers are unchecked, or while a transaction prepared before the start may have
    /// changed the cache.
    pub fn sees_every_change(&self) -> bool {
        self.suspended.load(Ordering::SeqCst) == 0 && self.unproven.load(Ordering::SeqCst) == 0
    }

    /// Adds `times` to a counter.
    #[inline]
    pub fn count(&self, counter: Counter, times: u64) {
        let shard = &self.counters[shard() % SHARDS];
        shard.0[counter as usize].fetch_add(times, Ordering::Relaxed);
    }

    /// Counts an entry that is added or removed.
    pub fn account(&self, change: EntryEvent) {
        let sign = if change.removed.is_none() { 1 } else { -1 };
        self.entries.fetch_add(sign, Ordering::Relaxed);
        self.bytes
            .fetch_add(sign * change.bytes as i64, Ordering::Relaxed);
        if change.deadline != NO_DEADLINE {
            let seconds = seconds(change.deadline);
            self.expiring.fetch_add(sign, Ordering::Relaxed);
            self.deadlines.fetch_add(sign * seconds, Ordering::Relaxed);
        }
        match change.removed {
            Some(RemovalCause::Evicted) => self.evicted.fetch_add(1, Ordering::Relaxed),
            Some(RemovalCause::Invalidated) => self.invalidated.fetch_add(1, Ordering::Relaxed),
            Some(RemovalCause::Expired) => self.expired.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Returns the share that the cache's definition gives it.
    pub fn share(&self) -> Share {
        Share {
            max_bytes: self.max_bytes.load(Ordering::Relaxed),
            reserve: self.reserve.load(Ordering::Relaxed),
        }
    }

    /// Returns the part of the reserve that is in force.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Sets the share. Only [`super::tier::Tier::put_share`] may call this, because it knows the reserves of the other
    /// caches.
    pub(super) fn set_share(&self, share: Share, held: u64) {
        self.max_bytes.store(share.max_bytes, Ordering::Relaxed);
        self.reserve.store(share.reserve, Ordering::Relaxed);
        self.held.store(held, Ordering::Relaxed);
    }

    /// Returns the rank of the cache's entries when the store makes room.
    pub(super) fn rank(&self) -> Rank {
        let bytes = self.bytes.load(Ordering::Relaxed).max(0) as u64;
        let most = self.max_bytes.load(Ordering::Relaxed);
        match most {
            1.. if bytes > most => Rank::OverBound,
            _ if bytes <= self.held() => Rank::Reserved,
            _ => Rank::Plain,
        }
    }

    /// Returns the number of entries with a deadline, and the mean of their deadlines in seconds since 2000.
    pub fn expiring(&self) -> (u64, i64) {
        let expiring = self.expiring.load(Ordering::Relaxed).max(0);
        let sum = self.deadlines.load(Ordering::Relaxed);
        (expiring as u64, sum.checked_div(expiring).unwrap_or(0))
    }

    /// Returns the sum of a counter since the last reset.
    pub fn counter(&self, counter: Counter) -> u64 {
        let counted: u64 = self
            .counters
            .iter()
            .map(|shard| shard.0[counter as usize].load(Ordering::Relaxed))
            .sum();
        match counter {
            Counter::Expired => counted + self.expired.load(Ordering::Relaxed),
            _ => counted,
        }
    }

    /// Returns the number of entries that were evicted since the last reset.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the number of entries that were invalidated since the last reset.
    pub fn invalidated(&self) -> u64 {
        self.invalidated.load(Ordering::Relaxed)
    }

    /// Returns the mean time of the cache's loaders in microseconds; 0 if no loader has run.
    pub fn load_time(&self) -> u64 {
        self.load_time.load(Ordering::Relaxed)
    }

    /// Records that a visible change has removed entries, so that values read under older snapshots are out of date.
    /// `now` is a Postgres timestamp, in microseconds.
    pub fn note_removal(&self, now: i64) {
        self.removed_at.fetch_max(now, Ordering::SeqCst);
    }

    /// Returns the time of the last [`Slot::note_removal`], or 0.
    pub fn removed_at(&self) -> i64 {
        self.removed_at.load(Ordering::SeqCst)
    }

    /// Resets the mean time of loaders, when another cache takes the slot.
    pub fn forget_loads(&self) {
        self.load_time.store(0, Ordering::Relaxed);
    }

    /// Adds the duration of a load to the mean, with a weight of one fifth. If two loads end at the same moment, the
    /// mean may include only one of them.
    pub fn note_load(&self, micros: u64) {
        let mean = match self.load_time() {
            0 => micros,
            former => (former * 4 + micros) / 5,
        };
        self.load_time.store(mean, Ordering::Relaxed);
    }

    /// Resets the counters to 0; the current numbers of entries and bytes stay.
    pub fn reset_figures(&self) {
        for counter in self.counters.iter().flat_map(|shard| &shard.0) {
            counter.store(0, Ordering::Relaxed);
        }
        for counter in [&self.evicted, &self.invalidated, &self.expired] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns a deadline in seconds. A deadline after the year 2272 counts as a deadline in 2272, so that the sum of a
/// billion deadlines does not overflow.
fn seconds(deadline: i64) -> i64 {
    const LAST: i64 = 1 << 33;
    (deadline / 1_000_000).clamp(0, LAST)
}

/// Returns a number that spreads backends over the groups of counters.
#[inline]
fn shard() -> usize {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::MyProcPid as usize }
}
