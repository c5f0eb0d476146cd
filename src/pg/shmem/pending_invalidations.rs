//! Transactions that are about to commit and then tell clients of what they have changed: who reads their
//! rows in between waits for that.
//!
//! Guards this order: a writer announces itself before its commit can be visible, and takes that back when
//! it has told; who has read looks afterwards. So whoever is visible and not announced any more has told.
//! Only while somebody asks for changes; else there is nothing to tell.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// More than there are sessions on most servers. Who finds no place is not waited for.
const PLACES: usize = 1024;

/// In shared memory, which begins zeroed: nobody tells.
#[repr(C)]
pub struct Telling {
    count: AtomicU32,
    /// The 64-bit ids of the transactions.
    xids: [AtomicU64; PLACES],
}

/// A transaction that is announced.
#[derive(Clone, Copy)]
pub struct Announced {
    place: usize,
    pub xid: u64,
}

impl Telling {
    /// Announces a transaction, until [`Telling::end`] is called. None: there is no place.
    pub fn begin(&self, xid: u64) -> Option<Announced> {
        let first = xid as usize % PLACES;
        let mut places = (first..PLACES).chain(0..first);
        let place = places.find(|&place| {
            let taken = self.xids[place].compare_exchange(0, xid, SeqCst, SeqCst);
            taken.is_ok()
        })?;
        // Before its commit, which is what others look for first.
        self.count.fetch_add(1, SeqCst);
        Some(Announced { place, xid })
    }

    /// It has told, or is rolled back.
    pub fn end(&self, announced: Announced) {
        self.xids[announced.place].store(0, SeqCst);
        self.count.fetch_sub(1, SeqCst);
    }

    /// Whether it has not told yet.
    pub fn stands(&self, announced: Announced) -> bool {
        self.xids[announced.place].load(SeqCst) == announced.xid
    }

    /// Those that are announced now.
    pub fn all(&self) -> impl Iterator<Item = Announced> {
        self.xids.iter().enumerate().filter_map(|(place, xid)| {
            let xid = xid.load(SeqCst);
            (xid != 0).then_some(Announced { place, xid })
        })
    }

    /// Whether there are any.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }
}
