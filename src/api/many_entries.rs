//! SQL functions that read, write or remove several entries in one call: `cache_get_many`, `cache_lookup_many`,
//! `cache_set_many`, `cache_delete_many`.

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use super::read::lookup_columns;
use super::{Answer, READ_MANY, SET_MANY, TO_DELETE, TO_READ, TO_WRITE, WRITE_MANY};
use crate::cache::catalog::registry::Cache;
use crate::cache::entries::{self, Entry};
use crate::cache::model::deadline;
use crate::cache::model::key::Key;
use crate::cache::open;
use crate::error::Error;
use crate::pg::memory;
use crate::pg::value::convert;
use crate::pg::value::datum::{ArrayOf, Bytes, Text};
use crate::pg::value::rows::Stream;
use crate::pg::value::stored::Stored;
use crate::pg::value::typed::Typed;

functions! {
    /// Returns a row for each key: the key, and its live value or NULL.
    [1, READ_MANY, TO_READ]
    fn cache_get_many<Text>, cache_get_many_bytes<Bytes>:
    fn(keys: Option<ArrayOf<Text>>, cache: Option<Oid>) -> Answer<Stream<2>> {
        each_found(keys, cache, |key, entry| {
            let value = entry.and_then(|entry| entry.value);
            let value = value.map(convert::result::<V>).map(Stored::of);
            [key.into(), value.into()]
        })
    }

    /// Returns a row for each key: the key, whether it was found, its live value, and its deadline.
    [1, READ_MANY, TO_READ]
    fn cache_lookup_many<Text>, cache_lookup_many_bytes<Bytes>:
    fn(keys: Option<ArrayOf<Text>>, cache: Option<Oid>) -> Answer<Stream<4>> {
        each_found(keys, cache, |key, entry| {
            let [is_there, value, deadline] = lookup_columns::<V>(entry);
            [key.into(), is_there, value, deadline]
        })
    }

    /// Inserts or overwrites several entries, and returns their number. If a key is passed twice, its last value wins.
    [3, SET_MANY, TO_WRITE]
    fn cache_set_many<Text>, cache_set_many_bytes<Bytes>:
    fn(
        keys: Option<ArrayOf<Text>>,
        vals: Option<ArrayOf<V>>,
        ttl: Option<Interval>,
        cache: Option<Oid>,
    ) -> Answer<i64> {
        let cache = open::to_write(cache, TO_WRITE, NAME)?;
        let (_, keys) = checked(&cache, &keys.ok_or(Error::NullArgument("keys"))?)?;
        let vals = vals.ok_or(Error::NullArgument("vals"))?.elements("vals")?;
        if keys.len() != vals.len() {
            return Err(Error::UnequalArrays.into());
        }
        let deadline = deadline::deadline(ttl, cache.settings.ttl)?;
        let values = vals
            .into_iter()
            .map(|value| convert::argument(value, cache.value_type));
        Ok(entries::set_many(&cache, keys.into_iter().zip(values), deadline)?)
    }

    /// Removes several entries, and returns how many of them were live.
    [1, WRITE_MANY, TO_DELETE]
    fn cache_delete_many: fn(keys: Option<ArrayOf<Text>>, cache: Option<Oid>) -> Answer<i64> {
        let cache = open::to_write(cache, TO_DELETE, NAME)?;
        let (_, keys) = checked(&cache, &keys.ok_or(Error::NullArgument("keys"))?)?;
        Ok(entries::delete_many(&cache, keys.into_iter())?)
    }
}

/// Returns a row for each key, in the order of the argument. `columns` builds the row from the key in the caller's
/// spelling, and from the live entry if one exists.
fn each_found<const N: usize>(
    keys: Option<ArrayOf<Text>>,
    cache: Option<Oid>,
    columns: impl Fn(Text, Option<&Entry>) -> [Typed; N] + 'static,
) -> Answer<Stream<N>> {
    Ok(Stream::new(move |sink| {
        let cache = open::to_read(cache, TO_READ)?;
        let Some(keys) = keys else {
            return Ok(());
        };
        let (asked, keys) = checked(&cache, &keys)?;
        let found = entries::get_many(&cache, &keys)?;
        for (key, entry) in asked.iter().zip(&found) {
            sink.row(|| Some(columns(*key, entry.as_ref())));
        }
        Ok(())
    }))
}

/// Returns the keys twice: in the caller's spelling, and in the canonical form of the cache.
fn checked(cache: &Cache, keys: &ArrayOf<Text>) -> Result<(Vec<Text>, Vec<Key>), Error> {
    let texts = keys.elements("keys")?;
    let mut keys = memory::list(texts.len());
    for &text in &texts {
        keys.push(cache.key(Key::new(text)?));
    }
    Ok((texts, keys))
}
