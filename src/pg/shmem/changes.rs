//! How often entries of memory caches have changed, for who watches a key: a count for all keys whose
//! hashes share a place.
//!
//! Guards this order: who watches raises `watchers` and then looks at the count under the lock of
//! the key's partition; who changes an entry looks at `watchers` and raises the count under the
//! same lock. So a change is either seen by the look, or counted after it. While nobody watches, a
//! writer pays for one load.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// More places mean fewer keys that are taken for one another; a change too many costs the watcher
/// a second try.
const PLACES: usize = 16 * 1024;

/// In shared memory, which begins zeroed: nobody watches.
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

    /// Who called [`Changes::watch`] watches no more.
    pub fn ignore(&self) {
        self.watchers.fetch_sub(1, SeqCst);
    }

    /// An entry of this hash changes.
    #[inline]
    pub fn note(&self, hash: u64) {
        if self.watchers.load(Relaxed) > 0 {
            self.place(hash).fetch_add(1, Relaxed);
        }
    }

    /// The count of a hash: while somebody watches it is another one after each change.
    pub fn count(&self, hash: u64) -> u32 {
        self.place(hash).load(Relaxed)
    }

    /// Other bits than those that choose the partition and the first bucket.
    fn place(&self, hash: u64) -> &AtomicU32 {
        &self.counts[(hash >> 20) as usize % PLACES]
    }
}
