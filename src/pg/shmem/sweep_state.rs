//! The state in shared memory of each cache that is swept. Each sweep, and the writers in between, leave information
//! here for the next sweep.
//!
//! `worker_state` holds the table of these states, assigns them to caches, and explains why they need no lock.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

use pgrx::pg_sys::Oid;

use super::cache_id::{AtomicCacheId, CacheId};
use crate::pg::session::clock::Timestamp;

const SECOND: i64 = 1_000_000;
/// The longest rest, however long a step took.
const LONGEST_REST: i64 = 600 * SECOND;

/// State that the last sweeps of a cache left for the next one. Times are Postgres timestamps.
#[repr(C, align(64))]
pub struct SweepState {
    pub(in crate::pg) cache: AtomicCacheId,
    /// The block at which the next sweep begins.
    pub cursor: AtomicU32,
    /// The number of errors in a row.
    pub failures: AtomicU32,
    /// The earliest time to try again after an error.
    pub retry_at: AtomicI64,
    /// The time at which a sweep last reached the end of the table; 0: never.
    pub last_sweep: AtomicI64,
    /// Microseconds from the deadline of the row that had waited longest until that sweep removed it.
    pub lag: AtomicI64,
    /// Expired rows that the last sweep left, estimated for the blocks that it did not reach.
    pub waiting: AtomicI64,
    /// The earliest deadline that the last whole sweep left.
    pub next_deadline: AtomicI64,
    /// The table's counter of changes when that sweep began.
    pub changes: AtomicI64,
    /// Dead rows that the last VACUUM could not remove, in the table and in its TOAST table.
    pub unremoved_rows: [AtomicI64; 2],
    /// Bytes that became dead in each of the two since its last VACUUM began, as reported by writers.
    pub dead_bytes: [AtomicU64; 2],
    /// The dead bytes at which the next VACUUM is worth its cost; 0: the table's size is not known yet.
    pub vacuum_at: [AtomicU64; 2],
    /// 1: that many bytes are dead, and no worker has responded yet.
    pub vacuum_requested: AtomicU8,
    /// How much shorter than full steps the steps of its sweep are, in the units of `crate::worker`.
    pub pace: AtomicU8,
    /// The time, in seconds since 2000, until which its sweep gives way to other caches after a slow step; 0: no
    /// recent step was slow.
    rests_until: AtomicU32,
    /// The cache's owner when a worker last found the cache due.
    pub owner: AtomicU32,
    /// The time at which a worker last responded to a request for a VACUUM.
    pub answered_at: AtomicI64,
}

impl SweepState {
    /// Lets other caches go first for as long as the last step took, at most ten minutes.
    pub fn rest(&self, now: Timestamp, took: Duration) {
        let took = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        let until = now.saturating_add(took.min(LONGEST_REST)) / SECOND + 1;
        let until = u32::try_from(until).unwrap_or(1).max(1);
        self.rests_until.store(until, Relaxed);
    }

    /// Returns whether a recent step of the cache was slow.
    pub fn is_slow(&self) -> bool {
        self.rests_until.load(Relaxed) != 0
    }

    /// Ends the rest, when the cache's steps are no longer slow.
    pub fn end_rest(&self) {
        self.rests_until.store(0, Relaxed);
    }

    /// Returns the rest's remaining microseconds. A rest longer than the longest possible was written before the
    /// clock was set back, and is ignored.
    pub fn rests_for(&self, now: Timestamp) -> Option<i64> {
        let left = i64::from(self.rests_until.load(Relaxed)) * SECOND - now;
        (1..=LONGEST_REST + SECOND).contains(&left).then_some(left)
    }

    /// Returns a number that grows with the time of the last slow step. The cache with the smallest number is next.
    pub fn slow_since(&self) -> u32 {
        self.rests_until.load(Relaxed)
    }

    /// Returns the same number if that step was in the last ten minutes; otherwise 0.
    pub fn slow_lately(&self, now: Timestamp) -> u32 {
        let since = self.rests_until.load(Relaxed);
        let ago = now - i64::from(since) * SECOND;
        match (-LONGEST_REST - SECOND..LONGEST_REST).contains(&ago) {
            true => since,
            false => 0,
        }
    }

    /// Returns the database of its cache; None where the state is free.
    pub(in crate::pg) fn database(&self) -> Option<Oid> {
        self.cache.load(Relaxed).map(CacheId::database)
    }

    pub(in crate::pg) fn reset(&self) {
        for field in [&self.cursor, &self.failures, &self.rests_until, &self.owner] {
            field.store(0, Relaxed);
        }
        for field in [&self.vacuum_requested, &self.pace] {
            field.store(0, Relaxed);
        }
        for bytes in self.dead_bytes.iter().chain(&self.vacuum_at) {
            bytes.store(0, Relaxed);
        }
        for field in [
            &self.retry_at,
            &self.last_sweep,
            &self.lag,
            &self.waiting,
            &self.next_deadline,
            &self.changes,
            &self.answered_at,
            &self.unremoved_rows[0],
            &self.unremoved_rows[1],
        ] {
            field.store(0, Relaxed);
        }
    }
}
