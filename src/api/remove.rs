//! Removing entries: delete, delete_if, delete_prefix, take, clear.

use std::ffi::CStr;

use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::{Answer, TO_DELETE, TO_TAKE};
use crate::cache::definition::define;
use crate::cache::model::key::Key;
use crate::cache::{entries, open};
use crate::error::Error;
use crate::pg::value::convert;
use crate::pg::value::datum::{Bytes, Text, Value};

#[pg_extern]
fn cache_delete_here(key: Option<Text>, cache: Option<Oid>) -> Answer<bool> {
    let cache = open::to_write(cache, TO_DELETE, c"cache_delete()")?;
    let key = cache.key(Key::of_write(key)?);
    Ok(entries::delete(&cache, key)?)
}

#[pg_extern]
fn cache_delete_if_here(
    key: Option<Text>,
    expected: Option<Text>,
    cache: Option<Oid>,
) -> Answer<bool> {
    delete_if(key, expected, cache, c"cache_delete_if()")
}

#[pg_extern]
fn cache_delete_if_bytes_here(
    key: Option<Text>,
    expected: Option<Bytes>,
    cache: Option<Oid>,
) -> Answer<bool> {
    delete_if(key, expected, cache, c"cache_delete_if_bytes()")
}

fn delete_if<V: Value>(
    key: Option<Text>,
    expected: Option<V>,
    cache: Option<Oid>,
    function: &CStr,
) -> Answer<bool> {
    let cache = open::to_write(cache, TO_TAKE, function)?;
    let key = cache.key(Key::of_write(key)?);
    let expected = expected.map(|value| convert::argument(value, cache.value_type));
    Ok(entries::delete_if(&cache, key, expected)?)
}

#[pg_extern]
fn cache_delete_prefix_here(prefix: Option<Text>, cache: Option<Oid>) -> Answer<i64> {
    let cache = open::to_write(cache, TO_DELETE, c"cache_delete_prefix()")?;
    let prefix = prefix.ok_or(Error::NullArgument("prefix"))?;
    Ok(entries::delete_prefix(&cache, prefix)?)
}

#[pg_extern]
fn cache_take_here(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<Text>> {
    take(key, cache, c"cache_take()")
}

#[pg_extern]
fn cache_take_bytes_here(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<Bytes>> {
    take(key, cache, c"cache_take_bytes()")
}

fn take<V: Value>(key: Option<Text>, cache: Option<Oid>, function: &CStr) -> Answer<Option<V>> {
    let cache = open::to_write(cache, TO_TAKE, function)?;
    let key = cache.key(Key::of_write(key)?);
    let value = entries::take(&cache, key, |entry| entry.value.map(convert::result))?;
    entries::count_read(&cache, value.is_some());
    Ok(value.flatten())
}

#[pg_extern]
fn cache_clear_here(cache: Option<Oid>) -> Answer<()> {
    let cache = open::to_clear(cache, c"cache_clear()")?;
    Ok(define::clear(&cache)?)
}
