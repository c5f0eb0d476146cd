//! Takes Citus' lock on a shard's metadata, which keeps the shard on its node.
//!
//! A command that moves or splits a shard takes this lock exclusively on every node before it copies the rows, and
//! holds it until the shard's new location is committed on that node. So a session that holds the lock in share mode,
//! on any node, keeps the shard where it is, and reads the shard's current location from its node.

use pgrx::pg_sys;

use super::advisory::as_transaction;

/// A shard of a colocation group. The corresponding shards of all tables in a group move together, under one lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The shard's position in the order of hash ranges.
    pub index: u32,
    pub group: u32,
}

/// Citus' class of advisory locks for shard metadata; classes 1 and 2 belong to applications.
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

/// Keeps a shard on its node until the transaction ends, or until each call of this function is undone by [`leave`].
/// Waits for a command that moves the shard, and then processes the command's invalidation messages.
pub fn keep(shard: Place) {
    // SAFETY: LockAcquire copies the tag; the lock belongs to the transaction, whose end releases it. Taking an
    // advisory lock processes no messages by itself.
    as_transaction(|| unsafe {
        pg_sys::LockAcquire(&tag(shard), MODE, false, false);
        pg_sys::AcceptInvalidationMessages();
    });
}

/// Undoes one call of [`keep`].
pub fn leave(shard: Place) {
    // SAFETY: `keep` took the lock under the same resource owner.
    as_transaction(|| unsafe { pg_sys::LockRelease(&tag(shard), MODE, false) });
}

/// Processes the invalidation messages of other sessions.
#[inline]
pub fn receive() {
    // SAFETY: inside a transaction; callbacks only raise flags.
    unsafe { pg_sys::AcceptInvalidationMessages() };
}
