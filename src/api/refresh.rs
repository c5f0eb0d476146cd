//! One refresh at a time: fetch, lease, set_leased, release.

use std::ffi::CStr;

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::{Answer, TO_READ, TO_WRITE};
use crate::cache::fetch::cache_fetch::Fetch;
use crate::cache::fetch::cache_lease::{self, State};
use crate::cache::model::key::Key;
use crate::cache::open;
use crate::cache::tier::hashed_key::HashedKey;
use crate::error::Error;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::value::convert;
use crate::pg::value::datum::{Bytes, Json, Text, Value};
use crate::pg::value::rows::OutRow;
use crate::pg::value::stored::Stored;
use crate::pg::value::typed::Typed;

#[pg_extern]
fn cache_fetch_here(
    key: Option<Text>,
    loader: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<Option<Text>> {
    fetch(key, loader, ttl, cache)
}

#[pg_extern]
fn cache_fetch_json_here(
    key: Option<Text>,
    loader: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<Option<Json>> {
    fetch(key, loader, ttl, cache)
}

#[pg_extern]
fn cache_fetch_bytes_here(
    key: Option<Text>,
    loader: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<Option<Bytes>> {
    fetch(key, loader, ttl, cache)
}

fn fetch<V: Value>(
    key: Option<Text>,
    loader: Option<Text>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<Option<V>> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    open::require(relation, TO_WRITE);
    let fetch = Fetch {
        relation,
        key: hashed(relation, Key::of_write(key)?)?,
        loader: loader.ok_or(Error::NullArgument("loader"))?,
        ttl,
        needs: TO_WRITE,
    };
    Ok(fetch.run()?.value.map(convert::result))
}

/// The key as the lease of it is known by, which the cache says.
fn hashed(relation: Oid, key: Key) -> Result<HashedKey, Error> {
    let key = HashedKey::of(CacheId::of(relation), key);
    Ok(open::known(relation)?.rehashed(key))
}

#[pg_extern]
fn cache_lease_here(
    key: Option<Text>,
    wait: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<OutRow<3>> {
    lease::<Text>(key, wait, cache)
}

#[pg_extern]
fn cache_lease_bytes_here(
    key: Option<Text>,
    wait: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<OutRow<3>> {
    lease::<Bytes>(key, wait, cache)
}

/// Columns: value, state, lease.
fn lease<V: Value>(
    key: Option<Text>,
    wait: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<OutRow<3>> {
    let relation = cache.ok_or(Error::NullArgument("cache"))?;
    open::require(relation, TO_READ);
    let wait = wait.ok_or(Error::NullArgument("wait"))?;
    if wait.as_micros() < 0 {
        return Err(Error::NegativeWait.into());
    }
    let Some(key) = Key::of_read(key)? else {
        open::lock_to_read(relation, TO_READ)?; // what is no cache is an error all the same
        return Ok(OutRow([Typed::NULL; 3]));
    };
    let key = hashed(relation, key)?;
    let leased = cache_lease::lease(relation, key, &wait)?;
    let value = leased.found.and_then(|entry| entry.value);
    let (word, lease) = match leased.state {
        State::Hit => ("hit", None),
        State::Stale => ("stale", None),
        State::Win(lease) => ("win", lease),
        State::Busy => ("busy", None),
    };
    Ok(OutRow([
        value.map(convert::result::<V>).map(Stored::of).into(),
        Text::new(word.as_bytes()).into(),
        Typed::of(lease.map(|number| number as i64)),
    ]))
}

#[pg_extern]
fn cache_set_leased_here(
    key: Option<Text>,
    value: Option<Text>,
    lease: Option<i64>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<bool> {
    set_leased(key, value, lease, ttl, cache, c"cache_set_leased()")
}

#[pg_extern]
fn cache_set_leased_bytes_here(
    key: Option<Text>,
    value: Option<Bytes>,
    lease: Option<i64>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<bool> {
    set_leased(key, value, lease, ttl, cache, c"cache_set_leased_bytes()")
}

fn set_leased<V: Value>(
    key: Option<Text>,
    value: Option<V>,
    lease: Option<i64>,
    ttl: Option<Interval>,
    cache: Option<Oid>,
    function: &CStr,
) -> Answer<bool> {
    let cache = open::to_write(cache, TO_WRITE, function)?;
    let key = cache.hashed(cache.key(Key::of_write(key)?));
    let entry = cache.entry(value.map(Stored::of), ttl)?;
    Ok(cache_lease::set(&cache, key, entry, lease)?)
}

#[pg_extern]
fn cache_release_here(
    key: Option<Text>,
    lease: Option<i64>,
    cache: Option<Oid>,
) -> Answer<Option<bool>> {
    let cache = open::to_read(cache, TO_READ)?;
    let Some(key) = Key::of_read(key)? else {
        return Ok(None);
    };
    let key = cache.hashed(cache.key(key));
    Ok(Some(cache_lease::release(key, lease)?))
}
