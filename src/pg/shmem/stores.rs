//! Counts of transactions that store what they have loaded: those that have not ended, and those that have begun.
//! Caches share a place, so an answer may be too careful.
//!
//! Guards this order: a store is announced before its row is written. So a deletion that has found no row knows
//! afterwards whether a row may have been written meanwhile.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::pg::session::fault::{self, Fault};

const OPEN: u64 = 1;
const BEGUN: u64 = 1 << 32;

/// Lies in shared memory, which begins zeroed.
#[repr(transparent)]
pub struct Stores(AtomicU64);

/// The counts at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StoresSeen(u64);

impl Stores {
    /// Announces a store until [`Stores::end`].
    pub fn begin(&self) {
        self.0.fetch_add(BEGUN + OPEN, SeqCst);
    }

    /// Ends a store, together with its transaction.
    pub fn end(&self) {
        self.0.fetch_sub(OPEN, SeqCst);
    }

    /// Returns the counts now.
    pub fn see(&self) -> StoresSeen {
        StoresSeen(self.0.load(SeqCst))
    }

    /// Returns whether the row of a store may not be visible yet.
    pub fn any(&self) -> bool {
        self.see().any()
    }

    /// Returns whether no row can have come since `seen`: no store was open then, and none has begun.
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
