//! A record: what sweepers and writers of one cache leave on the board for those who come after them.
//!
//! Where it lies, and whose it is, `board` says, and why it needs no lock.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use pgrx::pg_sys::Oid;

/// What the last sweeps of one cache left for the next.
#[repr(C, align(64))]
pub struct Record {
    pub(super) owner: AtomicU64,
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
    pub alarm: AtomicU32,
    /// When somebody last came.
    pub answered: AtomicI64,
}

impl Record {
    pub(super) fn database(&self) -> Oid {
        Oid::from_u32((self.owner.load(Relaxed) >> 32) as u32)
    }

    /// Whether it is the cache's, or was free and is now.
    pub(super) fn claim(&self, owner: u64) -> bool {
        match self.owner.load(Relaxed) {
            0 => match self.owner.compare_exchange(0, owner, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(now) => now == owner,
            },
            now => now == owner,
        }
    }

    pub(super) fn reset(&self) {
        for field in [&self.cursor, &self.failures, &self.alarm] {
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
