//! Checks whether a subscription of logical replication writes a table.

use pgrx::pg_sys::{self, Datum, Oid};

use super::relation;
use crate::pg::memory::pg_list;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::lock::{Brief, Mode};

/// Returns whether the apply worker of a subscription may change rows of this table: the table, or a partitioned table
/// above it, has a row in pg_subscription_rel. The row exists from CREATE SUBSCRIPTION or REFRESH PUBLICATION until the
/// subscription or its table is dropped, also while the subscription is disabled.
///
/// Also returns true while another session locks the catalog, because REFRESH PUBLICATION keeps this lock while it
/// waits for the publisher.
pub fn writes(table: Oid) -> bool {
    if fault::on(Fault::SubscribedRowsSwept) {
        return false;
    }
    let catalog = pg_sys::SubscriptionRelRelationId;
    // The new lock also makes this session process the changes of the catalog that other sessions have committed.
    let Some(_lock) = Brief::try_on(catalog, Mode::Read) else {
        return true;
    };
    // The file has no blocks in a database that has never had a subscription, nor after a VACUUM of the empty catalog.
    relation::blocks(catalog) > 0
        && (is_listed(table) || ancestors(table).into_iter().any(is_listed))
}

fn is_listed(table: Oid) -> bool {
    // SAFETY: a syscache lookup inside a transaction, by the first of two keys. The list is released after its length
    // has been read.
    unsafe {
        let kind = pg_sys::SysCacheIdentifier::SUBSCRIPTIONRELMAP as i32;
        let none = Datum::null();
        let list = pg_sys::SearchSysCacheList(kind, 1, Datum::from(table), none, none);
        let listed = (*list).n_members > 0;
        pg_sys::ReleaseCatCacheList(list);
        listed
    }
}

/// Returns the partitioned tables above a table.
fn ancestors(table: Oid) -> Vec<Oid> {
    if !relation::is_partition(table) {
        return Vec::new();
    }
    // SAFETY: one call, which reads pg_inherits and returns a list of OIDs in the memory context of the caller, where
    // `oids` copies it.
    unsafe { pg_list::oids(pg_sys::get_partition_ancestors(table)) }
}
