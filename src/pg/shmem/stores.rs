//! Counts the transactions that store loaded values: how many have begun, and how many are still open. Several caches
//! share a count, so the result may include stores of another cache.
//!
//! The order is essential: a session announces a store before it writes the row. So after a deletion has found no row,
//! it can check whether a store may have written the row since the deletion's search.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::pg::session::fault::{self, Fault};

const OPEN: u64 = 1;
const BEGUN: u64 = 1 << 32;

/// The counts in shared memory, which begins zeroed: open stores in the lower half, begun stores in the upper half.
#[repr(transparent)]
pub struct Stores(AtomicU64);

/// The counts at an earlier time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StoresSeen(u64);

impl Stores {
    /// Announces a store, until [`Stores::end`] is called.
    pub fn begin(&self) {
        self.0.fetch_add(BEGUN + OPEN, SeqCst);
    }

    /// Ends a store, at the end of its transaction.
    pub fn end(&self) {
        self.0.fetch_sub(OPEN, SeqCst);
    }

    /// Returns the current counts.
    pub fn see(&self) -> StoresSeen {
        StoresSeen(self.0.load(SeqCst))
    }

    /// Returns whether a store may have written a row that is not yet visible.
    pub fn any(&self) -> bool {
        self.see().any()
    }

    /// Returns whether no row can have been written since `seen`: no store was open at `seen`, and no store has begun
    /// since.
    pub fn none_since(&self, seen: StoresSeen) -> bool {
        let unchanged =
            self.see() == seen || fault::on(Fault::StoresBegunNotCounted) && !self.any();
        !seen.any() && unchanged
    }
}

impl StoresSeen {
    fn any(self) -> bool {
        self.0 as u32 > 0
    }
}
