//! The state in shared memory of a cache that workers sweep. Each sweep, and the writers between two sweeps, store
//! information for the next sweep here.
//!
//! `worker_state` holds the table of these states, assigns them to caches, and explains why they need no lock.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

use pgrx::pg_sys::Oid;

use super::cache_id::{AtomicCacheId, CacheId};
use crate::pg::session::clock::Timestamp;

const SECOND: i64 = 1_000_000;
/// The maximum length of a rest, even if a step took longer.
const LONGEST_REST: i64 = 600 * SECOND;

/// The state that earlier sweeps of a cache left for the next sweep. Times are Postgres timestamps.
#[repr(C, align(64))]
pub struct SweepState {
    pub(in crate::pg) cache: AtomicCacheId,
    /// The block at which the next sweep begins.
    pub cursor: AtomicU32,
    /// The number of consecutive errors.
    pub failures: AtomicU32,
    /// The earliest time to try again after an error.
    pub retry_at: AtomicI64,
    /// The time at which a sweep last reached the end of the table; 0 if none has.
    pub last_sweep: AtomicI64,
    /// The time from the deadline of the row that waited longest to its removal by the last sweep, in microseconds.
    pub lag: AtomicI64,
    /// The number of expired rows that the last sweep left, with an estimate for the blocks that it did not reach.
    pub waiting: AtomicI64,
    /// The earliest deadline of a row that the last whole sweep left.
    pub next_deadline: AtomicI64,
    /// The table's counter of changes at the beginning of the last whole sweep.
    pub changes: AtomicI64,
    /// The number of dead rows that the last VACUUM could not remove, in the table and in its TOAST table.
    pub unremoved_rows: [AtomicI64; 2],
    /// Bytes that became dead in the table and in its TOAST table since the beginning of the last VACUUM, as writers
    /// report them.
    pub dead_bytes: [AtomicU64; 2],
    /// The dead bytes at which the next VACUUM is worth its cost; 0 while the table's size is unknown.
    pub vacuum_at: [AtomicU64; 2],
    /// 1 if `vacuum_at` bytes are dead and no worker has yet responded to the request for a VACUUM.
    pub vacuum_requested: AtomicU8,
    /// How much smaller the steps of the cache's sweep are than full steps; `crate::worker::pace` defines the values.
    pub pace: AtomicU8,
    /// The time, in seconds since 2000, until which the cache's sweep gives way to other caches after a slow step; 0 if
    /// no recent step was slow.
    rests_until: AtomicU32,
    /// The cache's owner when a worker last found the cache due.
    pub owner: AtomicU32,
    /// The time at which a worker last responded to a request for a VACUUM.
    pub answered_at: AtomicI64,
}

impl SweepState {
    /// Begins a rest, during which other caches go first. It lasts as long as the last step took, at most ten minutes.
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

    /// Ends the rest, because the cache's steps are no longer slow.
    pub fn end_rest(&self) {
        self.rests_until.store(0, Relaxed);
    }

    /// Returns the remaining microseconds of the rest; None if the cache does not rest. Ignores a rest longer than the
    /// maximum, which can only come from before the clock was set back.
    pub fn rests_for(&self, now: Timestamp) -> Option<i64> {
        let left = i64::from(self.rests_until.load(Relaxed)) * SECOND - now;
        (1..=LONGEST_REST + SECOND).contains(&left).then_some(left)
    }

    /// Returns a number that grows with the time of the last slow step. The cache with the smallest number is next.
    pub fn slow_since(&self) -> u32 {
        self.rests_until.load(Relaxed)
    }

    /// Returns the result of [`SweepState::slow_since`] if the slow step was in the last ten minutes; otherwise 0.
    pub fn slow_lately(&self, now: Timestamp) -> u32 {
        let since = self.rests_until.load(Relaxed);
        let ago = now - i64::from(since) * SECOND;
        match (-LONGEST_REST - SECOND..LONGEST_REST).contains(&ago) {
            true => since,
            false => 0,
        }
    }

    /// Returns the database of the state's cache; None if the state is free.
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
