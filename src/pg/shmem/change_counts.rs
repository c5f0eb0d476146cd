//! Counts the changes to entries of memory caches, so that a session that watches a key (WATCH) notices a change.
//! Keys whose hashes share a counter share its count.
//!
//! The order is essential. A watching session raises `watchers`, and then reads the count under the lock of the key's
//! partition. A writer that changes an entry holds the same lock while it reads `watchers` and raises the count. So
//! either the session's read sees the change, or the writer counts the change after the read. While no session watches,
//! a writer only reads one word.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The number of counters. With more counters, fewer keys share a counter. If another key with the same counter
/// changes, the watching transaction fails without need, and its client tries again.
const PLACES: usize = 16 * 1024;

/// The counters in shared memory. Zeroed memory means that no session watches.
#[repr(C)]
pub struct Changes {
    watchers: AtomicU64,
    counts: [AtomicU32; PLACES],
}

impl Changes {
    /// Starts counting changes. Each call needs one call of [`Changes::ignore`], which ends it.
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

    /// Returns the count for a hash. While a session watches, the count differs after each change.
    pub fn count(&self, hash: u64) -> u32 {
        self.place(hash).load(Relaxed)
    }

    /// Returns the counter of a hash. Other bits of the hash choose the partition and the first bucket.
    fn place(&self, hash: u64) -> &AtomicU32 {
        &self.counts[(hash >> 20) as usize % PLACES]
    }
}
