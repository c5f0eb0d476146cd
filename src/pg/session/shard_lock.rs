//! Citus' lock on a shard's metadata.
//!
//! Who moves or splits a shard takes it on every node, exclusively, before the rows are copied, and keeps it until
//! the shard's new place is committed on that node. So whoever holds it in share mode, on any node, keeps the shard
//! where it is; and whoever gets it knows the place that their node will say.

use pgrx::pg_sys;

use super::advisory::as_transaction;

/// A shard of a colocation group: those of all its tables move together, under one lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// By the order of hashes.
    pub index: u32,
    pub group: u32,
}

/// Citus' class of advisory locks for it: 1 and 2 are those of applications.
const CLASS: u16 = 8;
const MODE: pg_sys::LOCKMODE = pg_sys::ShareLock as pg_sys::LOCKMODE;

fn tag(shard: Place) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        // SAFETY: a plain C variable of this process.
        locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
        locktag_field2: shard.index,
        locktag_field3: shard.group,
        locktag_field4: CLASS,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

/// Keeps a shard where it is, until the transaction ends or [`leave`] is called as often. Waits for who moves it, and
/// hears then of what they have changed.
pub fn keep(shard: Place) {
    // SAFETY: LockAcquire copies the tag; the owner is the transaction's, whose end gives the lock back. An advisory
    // lock reads no messages by itself.
    as_transaction(|| unsafe {
        pg_sys::LockAcquire(&tag(shard), MODE, false, false);
        pg_sys::AcceptInvalidationMessages();
    });
}

/// Gives back what [`keep`] has taken once.
pub fn leave(shard: Place) {
    // SAFETY: taken by `keep` under the same resource owner.
    as_transaction(|| unsafe { pg_sys::LockRelease(&tag(shard), MODE, false) });
}

/// Hears of what others have changed.
#[inline]
pub fn hear() {
    // SAFETY: inside of a transaction; callbacks only raise flags.
    unsafe { pg_sys::AcceptInvalidationMessages() };
}
