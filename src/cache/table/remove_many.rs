//! Removes many entries of a table cache: by key, by prefix, or all of them.

use std::ffi::CString;

use pgrx::pg_sys::Oid;

use super::row_ops::{as_owner_unless, delete};
use super::{access_path, direct};
use crate::cache::catalog::registry::{self, Cache};
use crate::cache::model::key::{Key, after_prefix};
use crate::cache::model::key_set::Keys;
use crate::cache::model::statement::Statement;
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::memory;
use crate::pg::session::{lock, transaction};
use crate::pg::spi::plan::{Paths, Plan};
use crate::pg::table::{routing, row_positions, truncate};
use crate::pg::value::datum::{Text, ValueType};
use crate::pg::value::typed::Typed;

/// The largest number of keys that are passed as one array. With more keys the planner chooses the path by their
/// number.
const MANY_KEYS: usize = 1_000;

/// Removes the entries of these keys as they are now, including entries that are too new for the transaction's own
/// snapshot.
pub fn delete_keys(cache: &Cache, keys: &Keys) {
    let direct = access_path::to_write(cache);
    if direct.is_some_and(|target| direct::remove_all(target, keys).is_some()) {
        return;
    }
    let mut sorted = memory::collect(keys.iter());
    if keys.len() <= MANY_KEYS {
        sorted.sort_unstable();
        let array = [Typed::byte_texts(&sorted)];
        return cache.plan(Statement::DeleteMany).change_as_of_now(&array);
    }
    let array = [Typed::byte_texts(&sorted)];
    let sql = "DELETE FROM $$only$$T AS pgcache_c WHERE pgcache_c.$$k IN \
         (SELECT e.k FROM pg_catalog.unnest($$keys) AS e (k))";
    let sql = cache
        .dialect()
        .expand(sql, cache.qualified_name().to_bytes());
    let sql = CString::new(sql).unwrap_or_default();
    let types = [ValueType::Text.array_oid()];
    let plan = Plan::over(cache.relation, sql, &types, Paths::Costed);
    plan.change_as_of_now(&array);
}

/// Waits for transactions that have written a row of one of these keys, if this transaction cannot see the row. In a
/// partitioned cache, reads and locks only the partitions of the keys. The keys are marked: a loaded row that is written
/// into a partition which is attached from now on, by another transaction than the one that attaches it, is not stored.
pub fn wait_for_unseen(cache: &Cache, keys: &Keys) {
    let mut numbers = memory::collect(0..keys.len());
    keys.sort(&mut numbers, |&number| number);
    let text_of = |number: usize| Text::new(keys.get(number));
    if !cache.partitioned {
        let texts = memory::collect(numbers.into_iter().map(text_of));
        return wait_in_table(cache, &texts);
    }
    privilege::accept_invalidations(); // partitions that were attached before the marks were set
    let routed = numbers.iter().enumerate().map(|(place, &number)| {
        let leaf = routing::leaf(cache.relation, text_of(number));
        (leaf.map(Oid::to_u32), place)
    });
    let mut routed = memory::collect(routed);
    routed.sort_unstable(); // by partition, and by key within it
    for of_leaf in routed.chunk_by(|one, other| one.0 == other.0) {
        let Some(&(Some(leaf), _)) = of_leaf.first() else {
            // No partition accepts these keys, except perhaps one that a transaction in progress has attached. A
            // writer of a row in it has locked the whole table, because only its own transaction sees the partition.
            lock::wait_for_writers(cache.relation);
            privilege::accept_invalidations();
            continue;
        };
        let leaf = Oid::from_u32(leaf);
        let texts = of_leaf.iter().filter_map(|&(_, place)| numbers.get(place));
        let texts = memory::collect(texts.map(|&number| text_of(number)));
        match registry::partition(leaf) {
            Some(partition) => wait_in_table(&partition, &texts),
            None => lock::wait_for_writers(leaf),
        }
    }
}

/// Does the work of [`wait_for_unseen`] in a table that stores rows itself. If the index by key cannot be searched,
/// waits for all writers of the table.
fn wait_in_table(cache: &Cache, keys: &[Text]) {
    let searched = cache
        .target
        .as_ref()
        .is_some_and(|target| row_positions::wait_for_unseen(target, keys.iter().copied()).is_ok());
    if !searched {
        lock::wait_for_writers(cache.relation);
    }
}

/// Removes all entries, row by row.
pub fn delete_all(cache: &Cache) {
    cache.plan(Statement::DeleteAll).change_as_of_now(&[]);
}

/// Removes all entries as TRUNCATE does. The caller holds the lock of TRUNCATE.
pub fn truncate(cache: &Cache) {
    truncate::truncate(cache.relation);
}

/// Removes all entries whose key begins with `prefix`. Returns how many of them were live.
pub fn delete_prefix(cache: &Cache, prefix: Text) -> i64 {
    keys_with_prefix(cache, prefix)
        .into_iter()
        .filter(|&key| delete(cache, key))
        .count() as i64
}

/// Returns the keys that begin with `prefix`, in order.
fn keys_with_prefix(cache: &Cache, prefix: Text) -> Vec<Key> {
    keys(cache, prefix, |_| true)
}

/// Returns the keys that begin with `prefix` and whose row another transaction has written, in order.
pub fn keys_of_others(cache: &Cache, prefix: Text) -> Vec<Key> {
    keys(cache, prefix, |xmin| !transaction::is_own(xmin))
}

/// Returns the keys that begin with `prefix` and for whose xmin `wanted` returns true, in order.
fn keys(cache: &Cache, prefix: Text, wanted: impl Fn(u32) -> bool) -> Vec<Key> {
    let _owner = as_owner_unless(cache, Privileges::SELECT);
    let mut arguments = vec![prefix.into()];
    let end = after_prefix(prefix.bytes());
    let bounded = end.is_some();
    arguments.extend(end.map(|end| Typed::bound(&end)));
    cache
        .plan(Statement::Keys { bounded })
        .run(&arguments, |output| {
            let rows = (0..output.rows()).filter(|&row| {
                let xmin = output.text(row, 1);
                let xmin = xmin.and_then(|text| str::from_utf8(text.bytes()).ok()?.parse().ok());
                xmin.is_none_or(&wanted)
            });
            let keys = rows.filter_map(|row| output.text(row, 0));
            let mut keys = memory::collect(keys.map(Key::stored));
            keys.dedup_by(|next, kept| next.bytes() == kept.bytes()); // a key may have two rows: see `versions`
            keys
        })
}
