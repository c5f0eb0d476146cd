//! Transactions that store what they have loaded: how many have not ended, and how many have begun. Caches
//! share a place, so an answer may be too careful.
//!
//! Guards this order: a store is announced before its row is written. So a deletion that has found no row
//! knows afterwards whether one may have come meanwhile.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::pg::session::fault::{self, Fault};

const OPEN: u64 = 1;
const BEGUN: u64 = 1 << 32;

/// In shared memory, which begins zeroed.
#[repr(transparent)]
pub struct Stores(AtomicU64);

/// The counts at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StoresSeen(u64);

impl Stores {
    /// Announces a store, until [`Stores::end`].
    pub fn begin(&self) {
        self.0.fetch_add(BEGUN + OPEN, SeqCst);
    }

    /// The transaction of a store has ended.
    pub fn end(&self) {
        self.0.fetch_sub(OPEN, SeqCst);
    }

    /// Returns the counts now.
    pub fn see(&self) -> StoresSeen {
        StoresSeen(self.0.load(SeqCst))
    }

    /// Whether the row of a store may not be visible yet.
    pub fn any(&self) -> bool {
        self.see().any()
    }

    /// Whether no row can have come since: none was on its way, and none has begun.
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
