//! Counts of changes to entries of memory caches, for sessions that watch a key. All keys whose hashes share a place
//! share its count.
//!
//! Guards this order: a watching session raises `watchers` and then reads the count under the lock of the key's
//! partition; a writer that changes an entry reads `watchers` and raises the count under the same lock. So a change
//! is either visible to that read, or counted after it. While no session watches, a writer pays for one load.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// More places let fewer keys share a count. A change of another key costs the watcher only a second try.
const PLACES: usize = 16 * 1024;

/// Lies in shared memory, which begins zeroed: no session watches.
#[repr(C)]
pub struct Changes {
    watchers: AtomicU64,
    counts: [AtomicU32; PLACES],
}

impl Changes {
    /// Counts changes from here on, until [`Changes::ignore`] is called as often.
    pub fn watch(&self) {
        self.watchers.fetch_add(1, SeqCst);
    }

    /// Ends one call of [`Changes::watch`].
    pub fn ignore(&self) {
        self.watchers.fetch_sub(1, SeqCst);
    }

    /// Counts a change of the entry with this hash.
    #[inline]
    pub fn note(&self, hash: u64) {
        if self.watchers.load(Relaxed) > 0 {
            self.place(hash).fetch_add(1, Relaxed);
        }
    }

    /// Returns the count of a hash. While a session watches, it differs after each change.
    pub fn count(&self, hash: u64) -> u32 {
        self.place(hash).load(Relaxed)
    }

    /// Uses other bits than those that choose the partition and the first bucket.
    fn place(&self, hash: u64) -> &AtomicU32 {
        &self.counts[(hash >> 20) as usize % PLACES]
    }
}
