//! A record: what sweepers and writers of one cache leave on the board for those who come after them.
//!
//! Where it lies, and whose it is, `worker_state` says, and why it needs no lock.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

use pgrx::pg_sys::Oid;

use crate::pg::session::clock::Timestamp;

const SECOND: i64 = 1_000_000;
/// The longest rest, however long a VACUUM took.
const LONGEST_REST: i64 = 600 * SECOND;

/// What the last sweeps of one cache left for the next.
#[repr(C, align(64))]
pub struct Record {
    pub(in crate::pg) owner: AtomicU64,
    /// The block at which the next sweep begins.
    pub cursor: AtomicU32,
    /// Errors in a row.
    pub failures: AtomicU32,
    /// Not before this moment, after an error.
    pub retry_at: AtomicI64,
    /// When a sweep last came to the end of the table; 0: none did.
    pub last_sweep: AtomicI64,
    /// Microseconds that the longest waiting row of that sweep had been expired for.
    pub lag: AtomicI64,
    /// Expired rows that the last sweep left, estimated where it has not been.
    pub waiting: AtomicI64,
    /// The earliest deadline that the last whole sweep left.
    pub next_deadline: AtomicI64,
    /// The table's counter of changes when that sweep began.
    pub changes: AtomicI64,
    /// Dead rows that the last vacuum could not remove, of the table and of its TOAST table.
    pub dead: [AtomicI64; 2],
    /// Bytes that have died in each of the two since its last vacuum began, as far as writers say.
    pub died: [AtomicU64; 2],
    /// The same at which it is worth the next one; 0: nobody has looked at its size.
    pub worth: [AtomicU64; 2],
    /// 1: that many have died, and nobody has come yet.
    pub alarm: AtomicU8,
    /// How far steps of its sweep are shorter than full ones, as the worker counts it.
    pub pace: AtomicU8,
    /// In seconds: until then it leaves the worker to others, after a step that took long; 0: none did lately.
    rests_until: AtomicU32,
    /// When somebody last came.
    pub answered: AtomicI64,
}

impl Record {
    /// After a step that took so long.
    pub fn rest(&self, now: Timestamp, took: Duration) {
        let took = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        let until = now.saturating_add(took.min(LONGEST_REST)) / SECOND + 1;
        let until = u32::try_from(until).unwrap_or(1).max(1);
        self.rests_until.store(until, Relaxed);
    }

    /// Whether one of its last steps took long.
    pub fn is_slow(&self) -> bool {
        self.rests_until.load(Relaxed) != 0
    }

    pub fn is_slow_no_more(&self) {
        self.rests_until.store(0, Relaxed);
    }

    /// How long it still rests, in microseconds. One that would rest for longer than anybody does was written
    /// before the clock was set back.
    pub fn rests_for(&self, now: Timestamp) -> Option<i64> {
        let left = i64::from(self.rests_until.load(Relaxed)) * SECOND - now;
        (1..=LONGEST_REST + SECOND).contains(&left).then_some(left)
    }

    /// When it last took long: who did so longest ago is next.
    pub fn slow_since(&self) -> u32 {
        self.rests_until.load(Relaxed)
    }

    pub(in crate::pg) fn database(&self) -> Oid {
        Oid::from_u32((self.owner.load(Relaxed) >> 32) as u32)
    }

    /// Whether it is the cache's, or was free and is now.
    pub(in crate::pg) fn claim(&self, owner: u64) -> bool {
        match self.owner.load(Relaxed) {
            0 => match self.owner.compare_exchange(0, owner, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(now) => now == owner,
            },
            now => now == owner,
        }
    }

    pub(in crate::pg) fn reset(&self) {
        for field in [&self.cursor, &self.failures, &self.rests_until] {
            field.store(0, Relaxed);
        }
        for field in [&self.alarm, &self.pace] {
            field.store(0, Relaxed);
        }
        for bytes in self.died.iter().chain(&self.worth) {
            bytes.store(0, Relaxed);
        }
        for field in [
            &self.retry_at,
            &self.last_sweep,
            &self.lag,
            &self.waiting,
            &self.next_deadline,
            &self.changes,
            &self.answered,
            &self.dead[0],
            &self.dead[1],
        ] {
            field.store(0, Relaxed);
        }
    }
}
