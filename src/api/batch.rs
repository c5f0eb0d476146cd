//! Several entries at once: get_many, lookup_many, set_many, delete_many.

use std::ffi::CStr;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::read::lookup_columns;
use super::{Answer, TO_DELETE, TO_READ, TO_WRITE};
use crate::cache::catalog::registry::Cache;
use crate::cache::model::deadline;
use crate::cache::model::key::Key;
use crate::cache::{entries, open};
use crate::error::Error;
use crate::pg::memory;
use crate::pg::value::convert;
use crate::pg::value::datum::{ArrayOf, Bytes, Text, Value};
use crate::pg::value::rows::Stream;
use crate::pg::value::stored::Stored;

#[pg_extern]
fn cache_get_many_here(keys: Option<ArrayOf<Text>>, cache: Option<Oid>) -> Answer<Stream<2>> {
    get_many::<Text>(keys, cache)
}

#[pg_extern]
fn cache_get_many_bytes_here(keys: Option<ArrayOf<Text>>, cache: Option<Oid>) -> Answer<Stream<2>> {
    get_many::<Bytes>(keys, cache)
}

fn get_many<V: Value>(keys: Option<ArrayOf<Text>>, cache: Option<Oid>) -> Answer<Stream<2>> {
    Ok(Stream::new(move |sink| {
        let cache = open::to_read(cache, TO_READ)?;
        let Some(keys) = keys else {
            return Ok(());
        };
        let (asked, keys) = checked(&cache, &keys)?;
        let found = entries::get_many(&cache, &keys)?;
        for (key, entry) in asked.iter().zip(&found) {
            sink.row(|| {
                let stored = entry.as_ref().and_then(|entry| entry.value);
                let value = stored.map(convert::result::<V>).map(Stored::of);
                Some([(*key).into(), value.into()])
            });
        }
        Ok(())
    }))
}

#[pg_extern]
fn cache_lookup_many_here(keys: Option<ArrayOf<Text>>, cache: Option<Oid>) -> Answer<Stream<4>> {
    lookup_many::<Text>(keys, cache)
}

#[pg_extern]
fn cache_lookup_many_bytes_here(
    keys: Option<ArrayOf<Text>>,
    cache: Option<Oid>,
) -> Answer<Stream<4>> {
    lookup_many::<Bytes>(keys, cache)
}

fn lookup_many<V: Value>(keys: Option<ArrayOf<Text>>, cache: Option<Oid>) -> Answer<Stream<4>> {
    Ok(Stream::new(move |sink| {
        let cache = open::to_read(cache, TO_READ)?;
        let Some(keys) = keys else {
            return Ok(());
        };
        let (asked, keys) = checked(&cache, &keys)?;
        let found = entries::get_many(&cache, &keys)?;
        for (key, entry) in asked.iter().zip(&found) {
            sink.row(|| {
                let [is_there, value, deadline] = lookup_columns::<V>(entry.as_ref());
                Some([(*key).into(), is_there, value, deadline])
            });
        }
        Ok(())
    }))
}

#[pg_extern]
fn cache_set_many_here(
    keys: Option<ArrayOf<Text>>,
    vals: Option<ArrayOf<Text>>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<i64> {
    set_many(keys, vals, ttl, cache, c"cache_set_many()")
}

#[pg_extern]
fn cache_set_many_bytes_here(
    keys: Option<ArrayOf<Text>>,
    vals: Option<ArrayOf<Bytes>>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<i64> {
    set_many(keys, vals, ttl, cache, c"cache_set_many_bytes()")
}

fn set_many<V: Value>(
    keys: Option<ArrayOf<Text>>,
    vals: Option<ArrayOf<V>>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
    function: &CStr,
) -> Answer<i64> {
    let cache = open::to_write(cache, TO_WRITE, function)?;
    let (_, keys) = checked(&cache, &keys.ok_or(Error::NullArgument("keys"))?)?;
    let vals = vals.ok_or(Error::NullArgument("vals"))?.elements("vals")?;
    if keys.len() != vals.len() {
        return Err(Error::UnequalArrays.into());
    }
    let deadline = deadline::deadline(ttl, cache.settings.ttl)?;
    let values = vals
        .into_iter()
        .map(|value| convert::argument(value, cache.value_type));
    Ok(entries::set_many(
        &cache,
        keys.into_iter().zip(values),
        deadline,
    )?)
}

#[pg_extern]
fn cache_delete_many_here(keys: Option<ArrayOf<Text>>, cache: Option<Oid>) -> Answer<i64> {
    let cache = open::to_write(cache, TO_DELETE, c"cache_delete_many()")?;
    let (_, keys) = checked(&cache, &keys.ok_or(Error::NullArgument("keys"))?)?;
    Ok(entries::delete_many(&cache, keys.into_iter())?)
}

/// The keys as the caller spells them, and as the cache does.
fn checked(cache: &Cache, keys: &ArrayOf<Text>) -> Result<(Vec<Text>, Vec<Key>), Error> {
    let texts = keys.elements("keys")?;
    let mut keys = memory::list(texts.len());
    for &text in &texts {
        keys.push(cache.key(Key::new(text)?));
    }
    Ok((texts, keys))
}
