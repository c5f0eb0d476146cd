//! Announces transactions that are about to commit and will then notify the Redis clients that track keys. An executor
//! that has read such a transaction's rows waits for the notification.
//!
//! The order is essential. A writer announces itself before its commit can become visible, and withdraws the
//! announcement after it has notified the clients. A reader checks for announcements after its read. So if a reader
//! sees a writer's rows but not its announcement, the writer has already notified the clients. Writers announce only
//! while a client tracks changes; otherwise there is no client to notify.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The maximum number of announcements at a time, which is more than most servers have sessions. A writer that finds no
/// free place is not announced, so readers do not wait for it.
const PLACES: usize = 1024;

/// The announcements in shared memory. Zeroed memory means that no transaction is announced.
#[repr(C)]
pub struct PendingInvalidations {
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

impl PendingInvalidations {
    /// Announces a transaction until [`PendingInvalidations::end`] is called. Returns None when no place is free.
    pub fn begin(&self, xid: u64) -> Option<Announced> {
        let first = xid as usize % PLACES;
        let mut places = (first..PLACES).chain(0..first);
        let place = places.find(|&place| {
            let taken = self.xids[place].compare_exchange(0, xid, SeqCst, SeqCst);
            taken.is_ok()
        })?;
        // The count rises before the commit; readers check it first.
        self.count.fetch_add(1, SeqCst);
        Some(Announced { place, xid })
    }

    /// Withdraws the announcement, after the writer has notified the clients or was rolled back.
    pub fn end(&self, announced: Announced) {
        self.xids[announced.place].store(0, SeqCst);
        self.count.fetch_sub(1, SeqCst);
    }

    /// Returns whether the writer has yet to notify the clients.
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
