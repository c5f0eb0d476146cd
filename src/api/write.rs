//! SQL functions that write one entry: `cache_set`, `cache_add`, `cache_replace`, `cache_cas`, `cache_touch`,
//! `cache_persist`, `cache_incr`, `cache_incr_existing`.

use std::ffi::CStr;
use std::rc::Rc;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::{Answer, TO_WRITE, WRITE};
use crate::cache::catalog::registry::Cache;
use crate::cache::entries::{self, Entry, Look};
use crate::cache::model::counter;
use crate::cache::model::deadline::{self, FOREVER_MONTHS};
use crate::cache::model::key::Key;
use crate::cache::open;
use crate::error::Error;
use crate::pg::value::convert;
use crate::pg::value::datum::{Bytes, Json, Text, Value};
use crate::pg::value::stored::Stored;

functions! {
    /// Inserts or overwrites an entry.
    [3, WRITE, TO_WRITE]
    fn cache_set<Text>, cache_set_json<Json>, cache_set_bytes<Bytes>:
    fn(key: Option<Text>, value: Option<V>, ttl: Option<Interval>, cache: Option<Oid>) -> Answer<()> {
        let (cache, key) = open_with_key(key, cache, NAME)?;
        Ok(entries::set(&cache, key, entry(&cache, value, ttl)?)?)
    }

    /// Stores an entry if no live entry exists. Returns whether the entry was stored.
    [3, WRITE, TO_WRITE]
    fn cache_add<Text>, cache_add_bytes<Bytes>:
    fn(key: Option<Text>, value: Option<V>, ttl: Option<Interval>, cache: Option<Oid>) -> Answer<bool> {
        let (cache, key) = open_with_key(key, cache, NAME)?;
        Ok(entries::add(&cache, key, entry(&cache, value, ttl)?)?)
    }

    /// Overwrites a live entry. Returns whether a live entry existed.
    [3, WRITE, TO_WRITE]
    fn cache_replace<Text>, cache_replace_bytes<Bytes>:
    fn(key: Option<Text>, value: Option<V>, ttl: Option<Interval>, cache: Option<Oid>) -> Answer<bool> {
        let (cache, key) = open_with_key(key, cache, NAME)?;
        Ok(entries::replace(&cache, key, entry(&cache, value, ttl)?)?)
    }

    /// Overwrites an entry if it has the expected value; NULL expects a negative entry or a miss. Returns whether it
    /// did.
    [4, WRITE, TO_WRITE]
    fn cache_cas<Text>, cache_cas_bytes<Bytes>:
    fn(
        key: Option<Text>,
        expected: Option<V>,
        value: Option<V>,
        ttl: Option<Interval>,
        cache: Option<Oid>,
    ) -> Answer<bool> {
        let (cache, key) = open_with_key(key, cache, NAME)?;
        let expected = expected.map(|value| convert::argument(value, cache.value_type));
        Ok(entries::replace_if(&cache, key, expected, entry(&cache, value, ttl)?)?)
    }

    /// Adds to a counter and returns the sum.
    [3, WRITE, TO_WRITE]
    fn cache_incr:
    fn(
        key: Option<Text>,
        delta: Option<i64>,
        ttl: Option<Interval>,
        cache: Option<Oid>,
    ) -> Answer<Option<i64>> {
        let (cache, key) = open_with_key(key, cache, NAME)?;
        let delta = delta.ok_or(Error::NullArgument("delta"))?;
        let deadline = deadline::deadline(ttl, cache.settings.ttl)?;
        Ok(entries::increment(&cache, key, delta, deadline)?)
    }

    /// Adds to the counter of a live entry and returns the sum; NULL if no live entry exists.
    [2, WRITE, TO_WRITE]
    fn cache_incr_existing:
    fn(key: Option<Text>, delta: Option<i64>, cache: Option<Oid>) -> Answer<Option<i64>> {
        let (cache, key) = open_with_key(key, cache, NAME)?;
        let delta = delta.ok_or(Error::NullArgument("delta"))?;
        Ok(entries::increment_existing(&cache, key, delta)?)
    }

    /// Sets a new deadline for a live entry. Returns whether a live entry exists.
    [2, WRITE, TO_WRITE]
    fn cache_touch: fn(key: Option<Text>, ttl: Option<Interval>, cache: Option<Oid>) -> Answer<bool> {
        let (cache, key) = open_with_key(key, cache, NAME)?;
        let deadline = deadline::deadline(ttl, cache.settings.ttl)?;
        Ok(match ttl.or(cache.settings.ttl) {
            Some(_) => entries::set_deadline(&cache, key, deadline)?,
            None => entries::get_to_touch(&cache, key, Look::Uncounted)?.is_some(),
        })
    }

    /// Sets a new deadline for a live entry and returns its value.
    [2, WRITE, TO_WRITE]
    fn cache_get_touch<Text>, cache_get_touch_bytes<Bytes>:
    fn(key: Option<Text>, ttl: Option<Interval>, cache: Option<Oid>) -> Answer<Option<V>> {
        if key.is_none() {
            open::to_read(cache, TO_WRITE)?; // raises an error for a relation that is not a cache
            return Ok(None);
        }
        let (cache, key) = open_with_key(key, cache, NAME)?;
        let value = touch(&cache, key, ttl, |entry| entry.value.map(convert::result))?;
        Ok(value.flatten())
    }

    /// Removes the deadline of a live entry. Returns whether a live entry exists.
    [1, WRITE, TO_WRITE]
    fn cache_persist: fn(key: Option<Text>, cache: Option<Oid>) -> Answer<bool> {
        let (cache, key) = open_with_key(key, cache, NAME)?;
        Ok(entries::persist(&cache, key)?)
    }
}

/// Returns `value + delta`. The SQL statement of `cache_incr` calls this function.
#[pg_extern]
fn counter_sum(value: Option<Text>, delta: Option<i64>) -> Answer<Option<Text>> {
    let (Some(value), Some(delta)) = (value, delta) else {
        return Ok(None);
    };
    Ok(Some(counter::sum(Some(value), delta)?))
}

/// Gives a live entry a new deadline from the ttl, or from the cache's default ttl. Without either, the deadline stays.
/// Returns the result of `project` for the entry.
fn touch<R>(
    cache: &Cache,
    key: Key,
    ttl: Option<Interval>,
    project: impl Fn(&Entry) -> R,
) -> Answer<Option<R>> {
    let deadline = deadline::deadline(ttl, cache.settings.ttl)?;
    Ok(match ttl.or(cache.settings.ttl) {
        Some(_) => entries::touch(cache, key, deadline, project)?,
        None => entries::get_to_touch(cache, key, Look::Counted)?
            .as_ref()
            .map(project),
    })
}

#[pg_extern]
fn cache_forever() -> Interval {
    Interval::from_months(FOREVER_MONTHS)
}

/// Opens a cache for a write. Checks the privileges before the key.
pub fn open_with_key(
    key: Option<Text>,
    cache: Option<Oid>,
    function: &CStr,
) -> Answer<(Rc<Cache>, Key)> {
    let cache = open::to_write(cache, TO_WRITE, function)?;
    let key = cache.key(Key::of_write(key)?);
    Ok((cache, key))
}

/// Builds the entry to store: the value in the type of the cache, and the deadline.
fn entry<V: Value>(cache: &Cache, value: Option<V>, ttl: Option<Interval>) -> Answer<Entry> {
    Ok(cache.entry(value.map(Stored::of), ttl)?)
}
