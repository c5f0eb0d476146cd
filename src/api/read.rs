//! Reading: get, lookup, exists, ttl, scan.

use pgrx::datum::Interval;
use pgrx::pg_sys::{Datum, Oid};
use pgrx::prelude::*;

use super::{Answer, TO_READ};
use crate::cache::entries::{self, Entry, Found};
use crate::cache::key::Key;
use crate::cache::{hot, registry};
use crate::error::Error;
use crate::pg::clock;
use crate::pg::convert;
use crate::pg::datum::{Bytes, Json, Record, Text, Value, ValueType};
use crate::pg::privilege;
use crate::pg::rows::Stream;

#[pg_extern]
fn cache_get(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<Text>> {
    get(key, cache)
}

#[pg_extern]
fn cache_get_json(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<Json>> {
    get(key, cache)
}

#[pg_extern]
fn cache_get_bytes(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<Bytes>> {
    get(key, cache)
}

fn get<V: Value>(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<V>> {
    let Some(Found { entry, value_type }) = find(key, cache)? else {
        return Ok(None);
    };
    Ok(entry
        .value
        .map(|stored| convert::result(stored, value_type)))
}

#[pg_extern]
fn cache_lookup(key: Option<Text>, cache: Option<Oid>) -> Answer<Record<3>> {
    let found = find(key, cache)?;
    let is_there = Some(Datum::from(found.is_some()));
    let Some(Found { entry, value_type }) = found else {
        return Ok(Record([is_there, None, None]));
    };
    let [value, deadline] = columns(&entry, value_type);
    Ok(Record([is_there, value, deadline]))
}

#[pg_extern]
fn cache_exists(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<bool>> {
    let asked = key.is_some();
    let found = find(key, cache)?.is_some();
    Ok(asked.then_some(found))
}

#[pg_extern]
fn cache_ttl(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<Interval>> {
    let deadline = find(key, cache)?.and_then(|found| found.entry.deadline);
    let now = clock::now(); // later than the moment at which it was found live
    let left = deadline.filter(|&deadline| deadline > now);
    Ok(left.and_then(|deadline| clock::between(now, deadline)))
}

#[pg_extern]
fn cache_scan(
    prefix: Option<Text>,
    after: Option<Text>,
    max_rows: Option<i32>,
    cache: Option<Oid>,
) -> Answer<Stream<3>> {
    Ok(Stream::new(move |sink| {
        let cache = registry::open_to_read(cache, TO_READ)?;
        let max_rows = max_rows.ok_or(Error::NullArgument("max_rows"))?;
        if max_rows < 0 {
            return Err(Error::NegativeCount("max_rows"));
        }
        let prefix = prefix.unwrap_or(Text::new(b""));
        entries::scan(&cache, prefix, after, max_rows as usize, &mut |make| {
            sink.row(|| {
                let (key, entry) = make()?;
                let [value, deadline] = columns(&entry, cache.value_type);
                Some([Some(key.raw()), value, deadline])
            });
        })
    }))
}

/// The live entry under a key; None for a miss and for a NULL key.
fn find(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<Found>> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    let key = Key::read(key);
    if let Ok(Some(key)) = key {
        hot::approach(relation, key);
    }
    privilege::require(relation, TO_READ);
    match key? {
        Some(key) => Ok(entries::get(relation, key)?),
        None => {
            registry::lock_to_read(relation)?; // a NULL key is no excuse for what is no cache
            Ok(None)
        }
    }
}

/// `value text, expires_at timestamptz` of an entry.
pub fn columns(entry: &Entry, value_type: ValueType) -> [Option<Datum>; 2] {
    let value = entry
        .value
        .map(|stored| convert::result::<Text>(stored, value_type).raw());
    [value, entry.deadline.map(Datum::from)]
}
