//! Caches that are partitions of a plain table: what is written through that table finds no expired row in its way
//! either.
//!
//! Which partition a row goes to is known when it is there, and by columns that need not be the key. So a cache that
//! becomes a partition gets a trigger that looks before each of its rows (`pg::hooks::hiding`), and loses it when it
//! is a partition no more. It can be of any depth: a cache that has partitions itself passes the trigger on to them.

use pgrx::pg_sys::Oid;

use crate::cache::model::{ddl, pending};
use crate::pg::catalog::privilege::AsOwner;
use crate::pg::catalog::{columns, own, relation};
use crate::pg::session::transaction;

/// Looks after the caches that came into another table as its partition, or left one.
pub fn follow() {
    while let Some(cache) = pending::take_placed() {
        let _writable = transaction::Writable::enter();
        let _snapshot = transaction::Snapshot::enter();
        look_after(cache);
    }
}

/// Gives the cache the trigger, or takes it away, as it needs. The caller holds a lock on it.
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
        return; // dropped since
    };
    let table = table.to_bytes();
    let _owner = AsOwner::to_maintain(cache);
    if present {
        // Postgres drops no trigger of a table that a cursor reads, but lets it be detached. One too many does no harm.
        if relation::is_in_use(cache) {
            return;
        }
        ddl::run(&[b"DROP TRIGGER IF EXISTS pgcache_renew ON ", table]);
    } else {
        look_before_rows(cache, table);
    }
}

/// Gives the cache of this name the trigger, for rows that are written where no plan of ours is asked.
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
