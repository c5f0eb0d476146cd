//! Transactions that are about to commit and then notify clients of their changes. A client that reads their rows in
//! between waits for the notification.
//!
//! Guards this order: a writer announces itself before its commit can be visible, and ends that after it has
//! notified; a reader checks after its read. So a writer that is visible and no longer announced has notified.
//! Writers announce only while a client tracks changes; otherwise there is nothing to notify.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// More places than most servers have sessions. Readers do not wait for a writer that finds no place.
const PLACES: usize = 1024;

/// Lies in shared memory, which begins zeroed: no transaction is announced.
#[repr(C)]
pub struct Telling {
    count: AtomicU32,
    /// The 64-bit ids of the transactions.
    xids: [AtomicU64; PLACES],
}

/// An announced transaction.
#[derive(Clone, Copy)]
pub struct Announced {
    place: usize,
    pub xid: u64,
}

impl Telling {
    /// Announces a transaction until [`Telling::end`] is called. Returns None when no place is free.
    pub fn begin(&self, xid: u64) -> Option<Announced> {
        let first = xid as usize % PLACES;
        let mut places = (first..PLACES).chain(0..first);
        let place = places.find(|&place| {
            let taken = self.xids[place].compare_exchange(0, xid, SeqCst, SeqCst);
            taken.is_ok()
        })?;
        // Raised before the commit, which is what readers look for first.
        self.count.fetch_add(1, SeqCst);
        Some(Announced { place, xid })
    }

    /// Ends the announcement once the writer has notified, or is rolled back.
    pub fn end(&self, announced: Announced) {
        self.xids[announced.place].store(0, SeqCst);
        self.count.fetch_sub(1, SeqCst);
    }

    /// Returns whether the writer has not notified yet.
    pub fn stands(&self, announced: Announced) -> bool {
        self.xids[announced.place].load(SeqCst) == announced.xid
    }

    /// Returns the transactions that are announced now.
    pub fn all(&self) -> impl Iterator<Item = Announced> {
        self.xids.iter().enumerate().filter_map(|(place, xid)| {
            let xid = xid.load(SeqCst);
            (xid != 0).then_some(Announced { place, xid })
        })
    }

    /// Returns whether any transaction is announced.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }
}
