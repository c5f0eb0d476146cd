//! Maintains a trigger on caches that are partitions of another table. Before a row is written through that table, the
//! trigger removes the expired row with the same key; otherwise the write would conflict with that row.
//!
//! The planner cannot do this, because the partition of a row is known only once the row exists, and may depend on
//! columns other than the key. So a cache gets the trigger when it becomes a partition (`pg::hooks::expired_rows`), and
//! loses it when it stops being a partition. A cache that itself has partitions passes the trigger on to them, at any
//! depth.

use pgrx::pg_sys::Oid;

use crate::cache::model::{ddl, pending};
use crate::pg::catalog::privilege::AsOwner;
use crate::pg::catalog::{columns, own, relation};
use crate::pg::session::transaction;

/// Updates the triggers of caches that became partitions of another table, or stopped being partitions.
pub fn follow() {
    while let Some(cache) = pending::take_placed() {
        let _writable = transaction::Writable::enter();
        let _snapshot = transaction::Snapshot::enter();
        look_after(cache);
    }
}

/// Creates or drops the trigger of a cache, as needed. The caller holds a lock on the cache.
pub fn look_after(cache: Oid) {
    let renew = own::RENEW_ROW.oid();
    let is_cache = relation::has_trigger(cache, own::RECORD.oid());
    let (wanted, present) = (
        is_cache && relation::is_partition(cache),
        relation::has_trigger(cache, renew),
    );
    if wanted == present || renew == pgrx::pg_sys::InvalidOid {
        return;
    }
    let Some(table) = relation::spelled(cache) else {
        return; // the cache was dropped after it was noted
    };
    let table = table.to_bytes();
    let _owner = AsOwner::to_maintain(cache);
    if present {
        // Postgres refuses to drop a trigger of a table that a cursor reads, although it lets the table be detached. A
        // superfluous trigger is harmless.
        if relation::is_in_use(cache) {
            return;
        }
        ddl::run(&[b"DROP TRIGGER IF EXISTS pgcache_renew ON ", table]);
    } else {
        look_before_rows(cache, table);
    }
}

/// Creates the trigger on the cache with this name, for rows that are written without pgcache's planning.
pub fn look_before_rows(cache: Oid, name: &[u8]) {
    if let Some(key) = columns::key_name(cache) {
        ddl::run(&[
            b"CREATE OR REPLACE TRIGGER pgcache_renew BEFORE INSERT OR UPDATE OF ",
            key.to_bytes(),
            b" ON ",
            name,
            b" FOR EACH ROW EXECUTE FUNCTION pgcache.renew_row()",
        ]);
    }
}
