//! Changes entries for the SQL functions. Most functions are one call of [`Store`]. Counters, `touch`, `take` and
//! `delete` are exceptions: over a table each is one statement, and over a memory cache they return a datum.

use pgcache_store::NO_DEADLINE;

use super::buffers::with_buffers;
use super::memory::{self as in_memory, judge_copy};
use super::sql_read::{self, Entry, Look};
use super::store::{Change, Copied, Failed, If, NewEntry, Store, Value, is_unchanged};
use super::table::{self as in_table, Rows, each_once, last_of_each};
use super::touch_after;
use crate::cache::catalog::registry::{Cache, Storage};
use crate::cache::commit::changes;
use crate::cache::memory::raw::Entries;
use crate::cache::memory::{handle, tier_ops as memory_cache};
use crate::cache::model::counter;
use crate::cache::model::deadline::Deadline;
use crate::cache::model::key::Key;
use crate::cache::open::again;
use crate::cache::table::{remove_many, row_ops as table};
use crate::error::Error;
use crate::pg::session;
use crate::pg::session::clock::Timestamp;
use crate::pg::shmem::slot::Counter;
use crate::pg::value::convert;
use crate::pg::value::datum::{Text, ValueType};
use crate::pg::value::stored::Stored;

/// Runs a call of [`Store`] on the entries of a cache that is open for changes.
macro_rules! on_entries {
    ($cache:expr, $entries:ident => $call:expr) => {
        match $cache.storage {
            Storage::Memory => on_memory($cache, |$entries| $call),
            _ => {
                let $entries = &Rows::of($cache);
                Ok($call?)
            }
        }
    };
}

/// Runs a call on the entries of a memory cache. Starts over if the cache was given another slot during the call.
/// Raises an error if the cache was dropped.
fn on_memory<R>(
    cache: &Cache,
    call: impl Fn(&Entries<'_>) -> Result<R, Failed>,
) -> Result<R, Error> {
    loop {
        match call(&Entries::open(cache)?) {
            Err(Failed::Gone) => session::check_for_interrupts(),
            done => return Ok(done?),
        }
    }
}

fn new(entry: Entry) -> NewEntry<'static> {
    NewEntry {
        value: entry.value.map(Value::Stored),
        deadline: entry.deadline.unwrap_or(NO_DEADLINE),
    }
}

/// Stores an entry if the condition holds. Returns whether the entry was stored.
fn put(cache: &Cache, key: Key, entry: Entry, condition: If<'_>) -> Result<bool, Error> {
    on_entries!(cache, entries => entries.put(&entries.key_of(&key), new(entry), condition))
}

/// Inserts or overwrites an entry.
pub fn set(cache: &Cache, key: Key, entry: Entry) -> Result<(), Error> {
    put(cache, key, entry, If::Always).map(drop)
}

/// Inserts or overwrites several entries and returns their number. If a key is passed twice, its last value wins.
pub fn set_many(
    cache: &Cache,
    entries: impl Iterator<Item = (Key, Stored)>,
    deadline: Deadline,
) -> Result<i64, Error> {
    let entries = last_of_each(entries);
    for &(key, _) in &entries {
        cache.check_room(key)?;
    }
    if cache.storage == Storage::Memory {
        for (key, value) in &entries {
            handle::check_size(key.text().bytes(), value.bytes())?; // all or none
        }
        for &(key, value) in &entries {
            let value = Some(value);
            set(cache, key, Entry { value, deadline })?;
            session::check_for_interrupts();
        }
        return Ok(entries.len() as i64);
    }
    in_table::set_many(cache, &entries, deadline)?;
    Ok(entries.len() as i64)
}

/// Inserts an entry if no live entry exists. Returns whether it was inserted.
pub fn add(cache: &Cache, key: Key, entry: Entry) -> Result<bool, Error> {
    put(cache, key, entry, If::Absent)
}

/// Overwrites a live entry. Returns whether a live entry existed.
pub fn replace(cache: &Cache, key: Key, entry: Entry) -> Result<bool, Error> {
    put(cache, key, entry, If::Present)
}

/// Overwrites an entry if its live value equals `expected`. If `expected` is None, the entry must be negative or
/// missing. Returns whether the entry was overwritten.
pub fn replace_if(
    cache: &Cache,
    key: Key,
    expected: Option<Stored>,
    entry: Entry,
) -> Result<bool, Error> {
    put(cache, key, entry, equals(expected))
}

fn equals(expected: Option<Stored>) -> If<'static> {
    expected.map_or(If::NoValue, |value| If::Equal(Value::Stored(value)))
}

/// Removes a live entry if its value equals `expected`. If `expected` is None, the entry must be negative. Returns
/// whether the entry was removed.
pub fn delete_if(cache: &Cache, key: Key, expected: Option<Stored>) -> Result<bool, Error> {
    on_entries!(cache, entries => entries.remove_if(&entries.key_of(&key), equals(expected)))
}

/// Adds to a counter and returns the sum. The deadline applies only if no live entry exists. Returns None if a
/// user-defined trigger has kept the row from being written.
pub fn increment(
    cache: &Cache,
    key: Key,
    delta: i64,
    deadline: Deadline,
) -> Result<Option<i64>, Error> {
    cache.check_room(key)?;
    if cache.storage == Storage::Memory {
        let new = deadline.unwrap_or(NO_DEADLINE);
        return count_in_memory(cache, key, delta, Some(new));
    }
    let sum = |value| sum(cache, value, delta);
    let sum = table::increment(cache, key, delta, deadline, sum)?;
    cache.count(Counter::Sets, u64::from(sum.is_some()));
    number(sum)
}

/// Adds to the counter of a live entry and returns the sum. Returns None if no live entry exists, or if a policy or a
/// trigger of the table keeps the row from being written.
pub fn increment_existing(cache: &Cache, key: Key, delta: i64) -> Result<Option<i64>, Error> {
    if cache.storage == Storage::Memory {
        return count_in_memory(cache, key, delta, None);
    }
    let sum = |value| sum(cache, value, delta);
    let sum = table::increment_existing(cache, key, delta, sum)?;
    cache.count(Counter::Sets, u64::from(sum.is_some()));
    number(sum)
}

/// Adds to a counter of a memory cache. A missing counter begins with the deadline `new`; without `new` the call
/// stores nothing.
fn count_in_memory(
    cache: &Cache,
    key: Key,
    delta: i64,
    new: Option<Timestamp>,
) -> Result<Option<i64>, Error> {
    on_memory(cache, |entries| {
        let decide = |present: Copied<'_>, made: &mut Vec<u8>| {
            let Some(deadline) = present.map(|(meta, _)| meta.deadline).or(new) else {
                return Ok((Change::Keep, None));
            };
            let former = present.filter(|(meta, _)| !meta.negative);
            let sum = counter::add(former.map(|(_, value)| value), delta)?;
            made.extend_from_slice(sum.to_string().as_bytes());
            Ok::<_, Failed>((Change::Put(deadline), Some(sum)))
        };
        with_buffers(|buffers| entries.change(&entries.key_of(&key), buffers, decide))
    })
}

/// Returns `value + delta` in the stored form of a counter. Bytes that are not text raise the error of a text that is
/// not an integer.
fn sum(cache: &Cache, value: Option<Stored>, delta: i64) -> Result<Stored, Error> {
    let text = value.map(|value| match value.value_type() {
        ValueType::Bytes => Text::new(value.bytes()),
        ValueType::Text | ValueType::Json => convert::result(value),
    });
    let text = counter::sum(text, delta)?;
    Ok(convert::argument(text, cache.value_type))
}

/// Returns the number of a counter.
fn number(counter: Option<Stored>) -> Result<Option<i64>, Error> {
    let text = counter.map(convert::result::<Text>);
    text.map(|text| counter::parse(text.bytes())).transpose()
}

/// Gives a live entry a new deadline, and returns the result of `project` for the entry. If `project` raises an error,
/// the entry stays unchanged. Counts a read.
pub fn touch<R>(
    cache: &Cache,
    key: Key,
    deadline: Deadline,
    project: impl Fn(&Entry) -> R,
) -> Result<Option<R>, Error> {
    if cache.storage != Storage::Memory {
        if let Some(left) = touch_after::left_as_it_is(cache, cache.hashed(key), deadline)? {
            cache.count(left.counter, 1);
            return Ok(left.entry.as_ref().map(project));
        }
        let touched = table::touch(cache, key, deadline).as_ref().map(project);
        sql_read::count_read(cache, touched.is_some());
        return Ok(touched);
    }
    let touched = on_memory(cache, |entries| {
        let key = entries.key_of(&key);
        judge_copy(
            entries,
            &key,
            |entry| Some(project(entry)),
            |copied| {
                let deadline = deadline.unwrap_or(NO_DEADLINE);
                entries.touch(&key, deadline, |entry| is_unchanged(Some(entry), copied))
            },
        )
    })?;
    sql_read::count_read(cache, touched.is_some());
    Ok(touched)
}

/// Gives a live entry a new deadline without copying its value. Returns whether a live entry exists.
pub fn set_deadline(cache: &Cache, key: Key, deadline: Deadline) -> Result<bool, Error> {
    if cache.storage != Storage::Memory {
        let left = touch_after::left_as_it_is(cache, cache.hashed(key), deadline)?;
        return Ok(left.is_some() || table::touch(cache, key, deadline).is_some());
    }
    redate_in_memory(cache, key, deadline)
}

fn redate_in_memory(cache: &Cache, key: Key, deadline: Deadline) -> Result<bool, Error> {
    let deadline = deadline.unwrap_or(NO_DEADLINE);
    on_memory(cache, |entries| {
        entries.touch(&entries.key_of(&key), deadline, |_| true)
    })
}

/// Returns the live entry of a key, for a touch that keeps its deadline. The cache is open.
pub fn get_to_touch(cache: &Cache, key: Key, counts: Look) -> Result<Option<Entry>, Error> {
    Ok(sql_read::find(cache.relation, cache.hashed(key), counts)?.entry)
}

/// Removes the deadline of a live entry. Returns whether a live entry exists.
pub fn persist(cache: &Cache, key: Key) -> Result<bool, Error> {
    match cache.storage {
        Storage::Memory => redate_in_memory(cache, key, None),
        _ => Ok(table::touch(cache, key, None).is_some()),
    }
}

/// Removes an entry and returns whether it was live.
pub fn delete(cache: &Cache, key: Key) -> Result<bool, Error> {
    if cache.storage == Storage::Memory {
        return on_memory(cache, |entries| {
            Ok(in_memory::delete(entries, &entries.key_of(&key)))
        });
    }
    Ok(in_table::delete(cache, key))
}

/// Removes an entry. Returns the result of `project` for it if it was live. If `project` raises an error, the entry
/// stays.
pub fn take<R>(cache: &Cache, key: Key, project: impl Fn(&Entry) -> R) -> Result<Option<R>, Error> {
    if cache.storage == Storage::Memory {
        return on_memory(cache, |entries| {
            in_memory::take(entries, &entries.key_of(&key), &project)
        });
    }
    Ok(in_table::take(cache, key).as_ref().map(project))
}

/// Removes several entries and returns how many of them were live.
pub fn delete_many(cache: &Cache, keys: impl Iterator<Item = Key>) -> Result<i64, Error> {
    each_once(keys, |key| delete(cache, key))
}

/// Removes all entries whose key begins with `prefix`, and returns how many were live.
pub fn delete_prefix(cache: &Cache, prefix: Text) -> Result<i64, Error> {
    cache.check_prefix(prefix)?;
    let removed = match cache.storage {
        Storage::Memory => memory_cache::delete_prefix(cache, prefix)?,
        _ => {
            changes::note_removal(cache.relation, prefix.bytes());
            again::request_end(cache);
            remove_many::delete_prefix(cache, prefix)
        }
    };
    cache.count(Counter::Deletes, removed as u64);
    Ok(removed)
}
