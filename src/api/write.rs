//! Writing one entry: set, add, replace, cas, touch, persist, incr, incr_existing.

use std::ffi::CStr;
use std::rc::Rc;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::{Answer, TO_WRITE};
use crate::cache::catalog::registry::Cache;
use crate::cache::entries::{self, Entry};
use crate::cache::model::counter;
use crate::cache::model::deadline::{self, FOREVER_MONTHS};
use crate::cache::model::key::Key;
use crate::cache::open;
use crate::error::Error;
use crate::pg::value::convert;
use crate::pg::value::datum::{Bytes, Json, Text, Value};
use crate::pg::value::stored::Stored;

#[pg_extern]
fn cache_set_here(
    key: Option<Text>,
    value: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<()> {
    set(key, value, ttl, cache, c"cache_set()")
}

#[pg_extern]
fn cache_set_json_here(
    key: Option<Text>,
    value: Option<Json>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<()> {
    set(key, value, ttl, cache, c"cache_set_json()")
}

#[pg_extern]
fn cache_set_bytes_here(
    key: Option<Text>,
    value: Option<Bytes>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<()> {
    set(key, value, ttl, cache, c"cache_set_bytes()")
}

fn set<V: Value>(
    key: Option<Text>,
    value: Option<V>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
    function: &CStr,
) -> Answer<()> {
    let (cache, key) = open_with_key(key, cache, function)?;
    Ok(entries::set(&cache, key, entry(&cache, value, ttl)?)?)
}

#[pg_extern]
fn cache_add_here(
    key: Option<Text>,
    value: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<bool> {
    add(key, value, ttl, cache, c"cache_add()")
}

#[pg_extern]
fn cache_add_bytes_here(
    key: Option<Text>,
    value: Option<Bytes>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<bool> {
    add(key, value, ttl, cache, c"cache_add_bytes()")
}

fn add<V: Value>(
    key: Option<Text>,
    value: Option<V>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
    function: &CStr,
) -> Answer<bool> {
    let (cache, key) = open_with_key(key, cache, function)?;
    Ok(entries::add(&cache, key, entry(&cache, value, ttl)?)?)
}

#[pg_extern]
fn cache_replace_here(
    key: Option<Text>,
    value: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<bool> {
    replace(key, value, ttl, cache, c"cache_replace()")
}

#[pg_extern]
fn cache_replace_bytes_here(
    key: Option<Text>,
    value: Option<Bytes>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<bool> {
    replace(key, value, ttl, cache, c"cache_replace_bytes()")
}

fn replace<V: Value>(
    key: Option<Text>,
    value: Option<V>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
    function: &CStr,
) -> Answer<bool> {
    let (cache, key) = open_with_key(key, cache, function)?;
    Ok(entries::replace(&cache, key, entry(&cache, value, ttl)?)?)
}

#[pg_extern]
fn cache_cas_here(
    key: Option<Text>,
    expected: Option<Text>,
    value: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<bool> {
    replace_if(key, expected, value, ttl, cache, c"cache_cas()")
}

#[pg_extern]
fn cache_cas_bytes_here(
    key: Option<Text>,
    expected: Option<Bytes>,
    value: Option<Bytes>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<bool> {
    replace_if(key, expected, value, ttl, cache, c"cache_cas_bytes()")
}

fn replace_if<V: Value>(
    key: Option<Text>,
    expected: Option<V>,
    value: Option<V>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
    function: &CStr,
) -> Answer<bool> {
    let (cache, key) = open_with_key(key, cache, function)?;
    let expected = stored(&cache, expected);
    Ok(entries::replace_if(
        &cache,
        key,
        expected,
        entry(&cache, value, ttl)?,
    )?)
}

#[pg_extern]
fn cache_incr_here(
    key: Option<Text>,
    delta: Option<i64>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<Option<i64>> {
    let (cache, key) = open_with_key(key, cache, c"cache_incr()")?;
    let delta = delta.ok_or(Error::NullArgument("delta"))?;
    let deadline = deadline::deadline(ttl, cache.settings.ttl)?;
    Ok(entries::increment(&cache, key, delta, deadline)?)
}

#[pg_extern]
fn cache_incr_existing_here(
    key: Option<Text>,
    delta: Option<i64>,
    cache: Option<Oid>,
) -> Answer<Option<i64>> {
    let (cache, key) = open_with_key(key, cache, c"cache_incr_existing()")?;
    let delta = delta.ok_or(Error::NullArgument("delta"))?;
    Ok(entries::increment_existing(&cache, key, delta)?)
}

/// `value + delta`, for the statement that `cache_incr` runs over a table.
#[pg_extern]
fn counter_sum(value: Option<Text>, delta: Option<i64>) -> Answer<Option<Text>> {
    let (Some(value), Some(delta)) = (value, delta) else {
        return Ok(None);
    };
    Ok(Some(counter::sum(Some(value), delta)?))
}

#[pg_extern]
fn cache_touch_here(key: Option<Text>, ttl: Option<Interval>, cache: Option<Oid>) -> Answer<bool> {
    let (cache, key) = open_with_key(key, cache, c"cache_touch()")?;
    Ok(touch(&cache, key, ttl, |_| ())?.is_some())
}

#[pg_extern]
fn cache_get_touch_here(
    key: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<Option<Text>> {
    get_touch(key, ttl, cache, c"cache_get_touch()")
}

#[pg_extern]
fn cache_get_touch_bytes_here(
    key: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<Option<Bytes>> {
    get_touch(key, ttl, cache, c"cache_get_touch_bytes()")
}

fn get_touch<V: Value>(
    key: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
    function: &CStr,
) -> Answer<Option<V>> {
    if key.is_none() {
        open::to_read(cache, TO_WRITE)?; // what is no cache is an error all the same
        return Ok(None);
    }
    let (cache, key) = open_with_key(key, cache, function)?;
    let value = touch(&cache, key, ttl, |entry| entry.value.map(convert::result))?;
    entries::count_read(&cache, value.is_some());
    Ok(value.flatten())
}

/// A new deadline by the ttl, or by the cache's default; without both the deadline stays.
fn touch<R>(
    cache: &Cache,
    key: Key,
    ttl: Option<Interval>,
    project: impl Fn(&Entry) -> R,
) -> Answer<Option<R>> {
    let deadline = deadline::deadline(ttl, cache.settings.ttl)?;
    Ok(match ttl.or(cache.settings.ttl) {
        Some(_) => entries::touch(cache, key, deadline, project)?,
        None => entries::get_to_touch(cache, key)?.as_ref().map(project),
    })
}

#[pg_extern]
fn cache_persist_here(key: Option<Text>, cache: Option<Oid>) -> Answer<bool> {
    let (cache, key) = open_with_key(key, cache, c"cache_persist()")?;
    Ok(entries::persist(&cache, key)?)
}

#[pg_extern]
fn cache_forever() -> Interval {
    Interval::from_months(FOREVER_MONTHS)
}

/// What every write begins with: the privileges first, then the key.
pub fn open_with_key(
    key: Option<Text>,
    cache: Option<Oid>,
    function: &CStr,
) -> Answer<(Rc<Cache>, Key)> {
    let cache = open::to_write(cache, TO_WRITE, function)?;
    let key = cache.key(Key::of_write(key)?);
    Ok((cache, key))
}

/// What is to be stored: the value in the cache's own type, and when it ends.
fn entry<V: Value>(cache: &Cache, value: Option<V>, ttl: Option<Interval>) -> Answer<Entry> {
    Ok(cache.entry(value.map(Stored::of), ttl)?)
}

/// An argument in the cache's own type.
fn stored<V: Value>(cache: &Cache, value: Option<V>) -> Option<Stored> {
    value.map(|value| convert::argument(value, cache.value_type))
}
