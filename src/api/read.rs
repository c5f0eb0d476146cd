//! SQL functions that read entries: `cache_get`, `cache_lookup`, `cache_exists`, `cache_ttl`, `cache_scan`,
//! `cache_keys`, `cache_count`; and `pgcache.node_of`, which returns which server holds a key.

use std::num::NonZeroU32;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::{Answer, COUNT, PAGE, READ, TO_READ};
use crate::cache::catalog::shard_metadata;
use crate::cache::entries::{self, Entry};
use crate::cache::model::entry::Page;
use crate::cache::model::key::Key;
use crate::cache::open;
use crate::cache::tier::hashed_key::HashedKey;
use crate::error::Error;
use crate::pg::session::clock;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::value::convert;
use crate::pg::value::datum::{Bytes, Json, Text, Value};
use crate::pg::value::key_type::KeyType;
use crate::pg::value::rows::{OutRow, Stream};
use crate::pg::value::stored::Stored;
use crate::pg::value::typed::Typed;

functions! {
    /// Returns the live value of a key.
    [1, READ, TO_READ]
    fn cache_get<Text>, cache_get_json<Json>, cache_get_bytes<Bytes>:
    fn(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<V>> {
        let value = find(key, cache)?.and_then(|entry| entry.value);
        Ok(value.map(convert::result))
    }

    /// Returns whether a key has a live entry, its value and its deadline.
    [1, READ, TO_READ]
    fn cache_lookup<Text>, cache_lookup_bytes<Bytes>:
    fn(key: Option<Text>, cache: Option<Oid>) -> Answer<OutRow<3>> {
        Ok(OutRow(lookup_columns::<V>(find(key, cache)?.as_ref())))
    }

    /// Returns whether the key has a live entry.
    [1, READ, TO_READ]
    fn cache_exists: fn(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<bool>> {
        let asked = key.is_some();
        let found = find(key, cache)?.is_some();
        Ok(asked.then_some(found))
    }

    /// Returns the remaining time of the live entry of a key; NULL if it has no deadline.
    [1, READ, TO_READ]
    fn cache_ttl: fn(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<Interval>> {
        let deadline = find(key, cache)?.and_then(|entry| entry.deadline);
        let now = clock::now(); // later than the time when the entry was found live
        let left = deadline.filter(|&deadline| deadline > now);
        Ok(left.and_then(|deadline| clock::between(now, deadline)))
    }

    /// Returns a page of live entries in key order.
    [3, PAGE, TO_READ]
    fn cache_scan<Text>, cache_scan_bytes<Bytes>:
    fn(
        prefix: Option<Text>,
        after: Option<Text>,
        max_rows: Option<i32>,
        cache: Option<Oid>,
    ) -> Answer<Stream<3>> {
        Ok(Stream::new(move |sink| {
            let cache = open::to_read(cache, TO_READ)?;
            let page = page(prefix, after, max_rows)?;
            entries::scan(&cache, &page, &mut |copy_out| {
                sink.row(|| {
                    let (key, entry) = copy_out()?;
                    let [value, deadline] = columns::<V>(&entry);
                    Some([key.into(), value, deadline])
                });
            })
        }))
    }

    /// Returns the keys of a page of live entries in key order.
    [3, PAGE, TO_READ]
    fn cache_keys:
    fn(
        prefix: Option<Text>,
        after: Option<Text>,
        max_rows: Option<i32>,
        cache: Option<Oid>,
    ) -> Answer<Stream<1>> {
        Ok(Stream::of_scalars(move |sink| {
            let cache = open::to_read(cache, TO_READ)?;
            let page = page(prefix, after, max_rows)?;
            entries::keys(&cache, &page, &mut |copy_out| {
                sink.row(|| Some([copy_out()?.into()]));
            })
        }))
    }

    /// Returns the number of live entries.
    [0, COUNT, TO_READ]
    fn cache_count: fn(cache: Option<Oid>) -> Answer<i64> {
        let cache = open::to_read(cache, TO_READ)?;
        Ok(entries::count(&cache)?)
    }
}

/// Builds a page from the arguments of a call.
fn page(prefix: Option<Text>, after: Option<Text>, max_rows: Option<i32>) -> Result<Page, Error> {
    let max_rows = max_rows.ok_or(Error::NullArgument("max_rows"))?;
    Ok(Page {
        prefix: prefix.unwrap_or(Text::new(b"")),
        after,
        max_rows: usize::try_from(max_rows).map_err(|_| Error::NegativeCount("max_rows"))?,
    })
}

/// Returns a number that identifies the server that holds a key. For a cache that Citus distributes, and without
/// `nodes`, it is the node of the key's shard. Otherwise it is one of `nodes` servers, chosen by the rule of Postgres'
/// hash partitions. Reads no entry, only the type of the keys or the shard metadata.
#[pg_extern]
fn node_of(cache: Option<Oid>, key: Option<Text>, nodes: Option<i32>) -> Answer<Option<i32>> {
    let key = Key::of_read(key)?;
    if let Some(cache) = cache
        && let Some(spread) = shard_metadata::of(cache)
    {
        open::require(cache, TO_READ);
        return match (key, nodes) {
            (None, _) => Ok(None),
            (Some(key), None) => Ok(Some(spread.shard(key.text()).node as i32)),
            (Some(key), Some(nodes)) => Ok(Some(
                KeyType::Text.remainder(key.text(), some_nodes(nodes)?),
            )),
        };
    }
    let nodes = some_nodes(nodes.ok_or(Error::NullArgument("nodes"))?)?;
    let cache = open::to_read(cache, TO_READ)?;
    Ok(key.map(|key| cache.key_type.remainder(cache.key(key).text(), nodes)))
}

fn some_nodes(nodes: i32) -> Result<NonZeroU32, Error> {
    let nodes = u32::try_from(nodes).ok().and_then(NonZeroU32::new);
    nodes.ok_or(Error::NodesNotPositive)
}

/// Returns the live entry of a key; None for a miss and for a NULL key.
fn find(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<Entry>> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    let hashed = |key| {
        let key = HashedKey::of(CacheId::of(relation), key);
        key.prefetch();
        key
    };
    let key = Key::of_read(key).map(|key| key.map(hashed));
    open::require(relation, TO_READ);
    match key? {
        Some(key) => Ok(entries::get(relation, key)?),
        None => {
            open::lock_to_read(relation, TO_READ)?; // raises an error for a relation that is not a cache
            Ok(None)
        }
    }
}

/// Returns the columns `value, expires_at timestamptz` of an entry.
pub fn columns<V: Value>(entry: &Entry) -> [Typed; 2] {
    let value = entry.value.map(convert::result::<V>).map(Stored::of);
    [value.into(), Typed::moment(entry.deadline)]
}

/// Returns the columns `found boolean, value, expires_at timestamptz` of an entry, which may be missing.
pub fn lookup_columns<V: Value>(found: Option<&Entry>) -> [Typed; 3] {
    let is_there = Typed::of(Some(found.is_some()));
    let [value, deadline] = found.map_or([Typed::NULL; 2], columns::<V>);
    [is_there, value, deadline]
}
