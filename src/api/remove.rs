//! SQL functions that remove entries: `cache_delete`, `cache_delete_if`, `cache_delete_prefix`, `cache_take`,
//! `cache_clear`.

use pgrx::pg_sys::Oid;

use super::{Answer, REMOVE, TO_DELETE, TO_TAKE, WRITE};
use crate::cache::definition::define;
use crate::cache::distribute::distributed_call::Kind;
use crate::cache::model::key::Key;
use crate::cache::{entries, open};
use crate::error::Error;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::value::convert;
use crate::pg::value::datum::{Bytes, Text};

functions! {
    /// Removes an entry. Returns whether the entry was live.
    [1, WRITE, TO_DELETE]
    fn cache_delete: fn(key: Option<Text>, cache: Option<Oid>) -> Answer<bool> {
        let cache = open::to_write(cache, TO_DELETE, NAME)?;
        let key = cache.key(Key::of_write(key)?);
        Ok(entries::delete(&cache, key)?)
    }

    /// Removes a live entry if it has the expected value; NULL expects a negative entry. Returns whether the entry was
    /// removed.
    [2, WRITE, TO_TAKE]
    fn cache_delete_if<Text>, cache_delete_if_bytes<Bytes>:
    fn(key: Option<Text>, expected: Option<V>, cache: Option<Oid>) -> Answer<bool> {
        let cache = open::to_write(cache, TO_TAKE, NAME)?;
        let key = cache.key(Key::of_write(key)?);
        let expected = expected.map(|value| convert::argument(value, cache.value_type));
        Ok(entries::delete_if(&cache, key, expected)?)
    }

    /// Removes all entries whose key begins with a prefix. Returns how many of them were live.
    [1, REMOVE, TO_DELETE]
    fn cache_delete_prefix: fn(prefix: Option<Text>, cache: Option<Oid>) -> Answer<i64> {
        let cache = open::to_write(cache, TO_DELETE, NAME)?;
        let prefix = prefix.ok_or(Error::NullArgument("prefix"))?;
        Ok(entries::delete_prefix(&cache, prefix)?)
    }

    /// Removes an entry and returns its value if it was live.
    [1, WRITE, TO_TAKE]
    fn cache_take<Text>, cache_take_bytes<Bytes>:
    fn(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<V>> {
        let cache = open::to_write(cache, TO_TAKE, NAME)?;
        let key = cache.key(Key::of_write(key)?);
        let value = entries::take(&cache, key, |entry| entry.value.map(convert::result))?;
        entries::count_read(&cache, value.is_some());
        Ok(value.flatten())
    }

    /// Removes all entries.
    [0, Kind::Clear, Privileges::TRUNCATE]
    fn cache_clear: fn(cache: Option<Oid>) -> Answer<()> {
        let cache = open::to_clear(cache, NAME)?;
        Ok(define::clear(&cache)?)
    }
}
