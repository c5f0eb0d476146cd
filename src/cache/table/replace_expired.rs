//! Removes the expired row of a key before plain SQL writes the key. Otherwise an INSERT would conflict with a row
//! that no SELECT shows.

use std::ffi::CStr;
use std::rc::Rc;

use pgrx::pg_sys::{Datum, Oid};

use crate::cache::catalog::registry::{self, Cache};
use crate::cache::model::entry::Entry;
use crate::cache::model::key::Key;
use crate::cache::model::statement::Statement;
use crate::cache::table::{access_path, direct};
use crate::pg::catalog::privilege::AsOwner;
use crate::pg::catalog::relation;
use crate::pg::spi::plan::{Paths, Plan};
use crate::pg::table::write::{RowAction, Seek};
use crate::pg::table::{probe, routing};
use crate::pg::value::datum::Text;
use crate::pg::value::typed::Typed;

/// Removes the row of this key if the row has expired. `written` is the relation that the statement writes and has
/// locked: a cache, or a table with caches as partitions. If the table is no longer a cache, keeps its rows.
///
/// A role that may write a key needs no DELETE privilege for the removal, because every SELECT already shows that the
/// key has no entry. The cache's own triggers run as its owner, as they do in a sweep.
pub fn renew(written: Oid, key: &[u8]) {
    let key = Key::stored(Text::new(key));
    let Some(cache) = holder(written, key) else {
        return;
    };
    let known = match &cache.target {
        Some(target) if target.readable && !cache.is_stale() => {
            probe::has_expired(target, key.text(), written).ok()
        }
        _ => None,
    };
    if known.unwrap_or_else(|| finds_expired(&cache, key)) {
        remove(&cache, key);
    }
}

/// Inserts the rows that a COPY has held back, as the role of the session.
pub fn insert_held_back(table: Oid, insert: &CStr, row_type: Oid, rows: &[Datum]) {
    let plan = Plan::over(table, insert.to_owned(), &[row_type], Paths::Costed);
    for &row in rows {
        plan.change_as_of_now(&[Typed::row(row, row_type)]);
    }
}

/// Returns the cache that contains the row of this key. For a partitioned cache it is the partition, so that only the
/// partition is read and changed, as its owner. Does not lock the tables above the partition, unless the statement
/// writes them. DETACH PARTITION locks the tables from the top down, so it would deadlock with a statement that locks
/// them from the partition up.
fn holder(written: Oid, key: Key) -> Option<Rc<Cache>> {
    let own = registry::remembered(written);
    if let Some(cache) = own.filter(|cache| !cache.partitioned) {
        return Some(cache);
    }
    if relation::is_partitioned(written) {
        return registry::partition(routing::leaf(written, key.text())?);
    }
    registry::partition(written).or_else(|| registry::find(written).ok())
}

/// Returns whether the row of a key has expired, for a table that is not read directly. Checked before the removal,
/// because the removal may raise an error, and a writer of a key without an expired row must not get that error.
fn finds_expired(cache: &Cache, key: Key) -> bool {
    let _owner = AsOwner::to_maintain(cache.relation);
    cache
        .plan(Statement::IsExpired)
        .run_as_of_now(&[key.text().into()], |output| output.processed > 0)
}

fn remove(cache: &Cache, key: Key) {
    let remove_expired = |entry: Option<Entry>| match entry {
        Some(entry) if !entry.is_live() => (RowAction::Remove, ()),
        _ => (RowAction::Keep, ()),
    };
    let removed = access_path::to_write(cache)
        .and_then(|target| direct::change(target, key, Seek::ToRemove, remove_expired));
    if removed.is_none() {
        let _owner = AsOwner::to_remove(cache.relation);
        cache
            .plan(Statement::DeleteExpired)
            .change_as_of_now(&[key.text().into()]);
    }
}
