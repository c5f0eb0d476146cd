//! SQL functions that let one caller at a time compute a missing value: `cache_fetch`, `cache_lease`,
//! `cache_set_leased`, `cache_release`.

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use super::{Answer, FETCH, LEASE, READ, TO_READ, TO_WRITE, WRITE};
use crate::cache::fetch::cache_fetch::Fetch;
use crate::cache::fetch::cache_lease::State;
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

functions! {
    /// Returns the live value of a key; on a miss a loader computes the value.
    [3, FETCH, TO_WRITE]
    fn cache_fetch<Text>, cache_fetch_json<Json>, cache_fetch_bytes<Bytes>:
    fn(
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
            returns: V::TYPE,
        };
        Ok(fetch.run()?.value.map(convert::result))
    }

    /// Returns the live value of a key, or the lease to compute the value. Columns: value, state, lease.
    [2, LEASE, TO_READ]
    fn cache_lease<Text>, cache_lease_bytes<Bytes>:
    fn(key: Option<Text>, wait: Option<Interval>, cache: Option<Oid>) -> Answer<OutRow<3>> {
        let relation = cache.ok_or(Error::NullArgument("cache"))?;
        open::require(relation, TO_READ);
        let wait = wait.ok_or(Error::NullArgument("wait"))?;
        if wait.as_micros() < 0 {
            return Err(Error::NegativeWait.into());
        }
        let Some(key) = Key::of_read(key)? else {
            open::lock_to_read(relation, TO_READ)?; // raises an error for a relation that is not a cache
            return Ok(OutRow([Typed::NULL; 3]));
        };
        let key = hashed(relation, key)?;
        let leased = crate::cache::fetch::cache_lease::lease(relation, key, &wait)?;
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

    /// Stores a value that was computed under a lease, if the lease is still valid. Returns whether the value was
    /// stored.
    [4, WRITE, TO_WRITE]
    fn cache_set_leased<Text>, cache_set_leased_bytes<Bytes>:
    fn(
        key: Option<Text>,
        value: Option<V>,
        lease: Option<i64>,
        ttl: Option<Interval>,
        cache: Option<Oid>,
    ) -> Answer<bool> {
        let cache = open::to_write(cache, TO_WRITE, NAME)?;
        let key = cache.hashed(cache.key(Key::of_write(key)?));
        let entry = cache.entry(value.map(Stored::of), ttl)?;
        Ok(crate::cache::fetch::cache_lease::set(&cache, key, entry, lease)?)
    }

    /// Releases a lease. Returns whether the lease was valid.
    [2, READ, TO_READ]
    fn cache_release:
    fn(key: Option<Text>, lease: Option<i64>, cache: Option<Oid>) -> Answer<Option<bool>> {
        let cache = open::to_read(cache, TO_READ)?;
        let Some(key) = Key::of_read(key)? else {
            return Ok(None);
        };
        let key = cache.hashed(cache.key(key));
        Ok(Some(crate::cache::fetch::cache_lease::release(key, lease)?))
    }
}

/// Returns the key in the canonical form of the cache, with the hash that identifies its lease.
fn hashed(relation: Oid, key: Key) -> Result<HashedKey, Error> {
    let key = HashedKey::of(CacheId::of(relation), key);
    Ok(open::known(relation)?.rehashed(key))
}
