//! Fences: keys of memory caches that must not be stored until a commit is visible.
//!
//! A fixed table of key hashes in shared memory. Guards this order: a fence is raised before the
//! entry is removed under its partition's lock, and a store looks for a fence under the same lock.
//! So no entry that was stored before the removal stays, and none comes back after it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Fences of the whole server at a time. A transaction that finds no place fences off the whole
/// cache instead.
const PLACES: usize = 1024;
/// How many places from where its hash points a fence may stand.
const REACH: usize = 16;
/// The hash 0 means "free"; a key whose hash is 0 stands under another one.
const INSTEAD_OF_ZERO: u64 = 1;

/// In shared memory, which begins zeroed: no fences.
#[repr(C)]
pub struct Fences {
    raised: AtomicU64,
    places: [AtomicU64; PLACES],
}

impl Fences {
    /// Fences off a key; false when there is no place for the fence.
    pub fn raise(&self, hash: u64) -> bool {
        let hash = hash.max(INSTEAD_OF_ZERO);
        let taken = |place: &&AtomicU64| place.compare_exchange(0, hash, SeqCst, SeqCst).is_ok();
        let raised = self.near(hash).find(taken).is_some();
        if raised {
            self.raised.fetch_add(1, SeqCst);
        }
        raised
    }

    /// Takes away one that was raised; each that fences the same key has its own.
    pub fn lower(&self, hash: u64) {
        let hash = hash.max(INSTEAD_OF_ZERO);
        let freed = |place: &&AtomicU64| place.compare_exchange(hash, 0, SeqCst, SeqCst).is_ok();
        if self.near(hash).find(freed).is_some() {
            self.raised.fetch_sub(1, SeqCst);
        }
    }

    /// Whether a fence stands before this key.
    pub fn stands_before(&self, hash: u64) -> bool {
        let hash = hash.max(INSTEAD_OF_ZERO);
        self.raised.load(SeqCst) > 0 && self.near(hash).any(|place| place.load(SeqCst) == hash)
    }

    fn near(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        let home = hash as usize % PLACES;
        (0..REACH).map(move |step| &self.places[(home + step) % PLACES])
    }
}
