//! Detects partitions of a source table that the apply worker of logical replication has truncated.
//!
//! The source's own trigger or the object access hook reports any other TRUNCATE. The apply worker truncates the
//! partitions themselves, even if the publisher truncated their parent, and calls no hook; the only trace is a relcache
//! invalidation for each partition. So an apply worker remembers the invalidated relations, and at the end of the
//! transaction checks which of them have a new file. Without this check, entries that depend on a truncated partition
//! would stay.

use std::collections::HashSet;

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::pg::catalog::catalog_rows;
use crate::pg::hooks::{dependency, pre_commit_portal};
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::version;

unsafe extern "C-unwind" {
    // Reads a variable of the process.
    safe fn IsLogicalWorker() -> bool;
}

thread_local! {
    /// The relations that were invalidated in this transaction.
    static CHANGED: TransactionLocal<HashSet<u32>> = TransactionLocal::default();
}

/// Registers the callback; called once while the library is loaded.
pub fn register() {
    // SAFETY: the callback lives as long as the library, which Postgres never unloads.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(relation_changed), pg_sys::Datum::null());
    }
}

/// Remembers an invalidated relation. Must read no catalog, because Postgres calls this while it processes
/// invalidations: at the end of each command and whenever it takes a lock.
#[pg_guard]
unsafe extern "C-unwind" fn relation_changed(_arg: pg_sys::Datum, relation: Oid) {
    // SAFETY: reads a variable of this process.
    let counts = IsLogicalWorker() && unsafe { pg_sys::IsTransactionState() };
    if counts && relation != pg_sys::InvalidOid {
        CHANGED.with(|changed| changed.change(|changed| changed.insert(relation.to_u32())));
        pre_commit_portal::request();
    }
}

/// Invalidates the caches that depend on truncated partitions. Runs as a part of the commit.
pub fn see_truncated() {
    if CHANGED.with(|changed| changed.look(HashSet::is_empty)) {
        return;
    }
    let changed = CHANGED.with(|changed| changed.change(std::mem::take));
    for partition in changed.into_iter().map(Oid::from_u32) {
        let is_one = |class: catalog_rows::Class| class.is_partition && class.has_triggers;
        if catalog_rows::class(partition).is_some_and(is_one) && has_new_file(partition) {
            dependency::partition_truncated(partition);
        }
    }
}

/// Forgets the invalidated relations at the end of the transaction.
pub fn forget() {
    CHANGED.with(|changed| changed.change(HashSet::clear));
}

fn has_new_file(relation: Oid) -> bool {
    // SAFETY: the relation is open while it is read; NULL stands for a dropped relation.
    unsafe {
        let lock = pg_sys::AccessShareLock as i32;
        let open = pg_sys::try_relation_open(relation, lock);
        !open.is_null() && {
            let new = version::has_new_file(open);
            pg_sys::relation_close(open, lock);
            new
        }
    }
}
