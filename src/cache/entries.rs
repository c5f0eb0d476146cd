//! Entries, wherever they are: each function of the api over a table cache or a memory cache.
//!
//! The one place that knows both. A read of a table cache asks the hot tier first and fills it in
//! after a miss.

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use super::catalog::reading::Reading;
use super::catalog::registry::{self, Cache, Storage};
use super::commit::changes;
use super::memory::ops::{CopyOut, Decision, Row};
use super::memory::{handle, ops as memory_cache, pages};
use super::model::counter;
use super::model::deadline::Deadline;
use super::model::key::Key;
use super::model::page::Page;
use super::open::{self, again};
use super::table::{copies, ops as table, remove_many};
use super::tier::hashed_key::{self, HashedKey};
use crate::error::Error;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::memory;
use crate::pg::session;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::pause::{self, Window};
use crate::pg::shmem::slot::Figure;
use crate::pg::value::convert;
use crate::pg::value::datum::Text;
use crate::pg::value::stored::Stored;

pub use crate::cache::model::entry::{Entry, Look};

/// The entry of a read, and the figure in which it counts.
#[derive(Clone, Copy)]
pub struct Found {
    pub entry: Option<Entry>,
    pub figure: Figure,
}

/// The live entry under a key. The caller has checked the privileges.
pub fn get(relation: Oid, key: HashedKey) -> Result<Option<Entry>, Error> {
    let found = look(relation, key, Privileges::SELECT, Look::Counted, |_| None);
    found.map(|found| found.entry)
}

/// The same, for a caller that may count the read itself.
pub fn find(relation: Oid, key: HashedKey, counts: Look) -> Result<Found, Error> {
    look(relation, key, Privileges::SELECT, counts, |_| None)
}

/// The live entry under a key, or a stale one whose grace has not passed yet, for a call that needs
/// these privileges.
pub fn get_or_stale(
    relation: Oid,
    key: HashedKey,
    needs: Privileges,
    counts: Look,
) -> Result<Option<Entry>, Error> {
    let found = look(relation, key, needs, counts, |cache| cache.settings.grace);
    found.map(|found| found.entry)
}

#[inline(always)]
fn look(
    relation: Oid,
    key: HashedKey,
    needs: Privileges,
    counts: Look,
    grace: impl Fn(&Cache) -> Option<Interval>,
) -> Result<Found, Error> {
    if let Some(cache) = registry::remembered(relation) {
        let key = cache.rehashed(key);
        if cache.storage == Storage::Memory {
            return get_from_memory(&cache, key, counts, grace(&cache));
        }
        if let Some(entry) = copies::lookup(&cache, key, grace(&cache), counts) {
            return Ok(Found {
                entry: Some(entry),
                figure: Figure::HotHits,
            });
        }
    }
    let cache = open::lock_to_read(relation, needs)?;
    let key = cache.rehashed(key);
    if cache.storage == Storage::Memory {
        return get_from_memory(&cache, key, counts, grace(&cache));
    }
    let entry = get_from_table(&cache, key, grace(&cache));
    Ok(seen(&cache, entry, counts))
}

fn get_from_memory(
    cache: &Cache,
    key: HashedKey,
    counts: Look,
    grace: Option<Interval>,
) -> Result<Found, Error> {
    Ok(seen(cache, memory_cache::get(cache, key, grace)?, counts))
}

/// The result of a read past the copies of a table cache.
fn seen(cache: &Cache, entry: Option<Entry>, counts: Look) -> Found {
    let figure = figure_of(cache, entry.is_some());
    if counts == Look::Counted {
        cache.count(figure, 1);
    }
    Found { entry, figure }
}

/// The figure of a read past the copies of a table cache.
fn figure_of(cache: &Cache, is_hit: bool) -> Figure {
    match (is_hit, cache.storage) {
        (false, _) => Figure::Misses,
        (true, Storage::Memory) => Figure::HotHits,
        (true, _) => Figure::TableHits,
    }
}

/// The token comes before the snapshot that the read takes.
fn get_from_table(cache: &Reading, key: HashedKey, grace: Option<Interval>) -> Option<Entry> {
    let token = copies::token(cache, key);
    pause::at(Window::TokenToSnapshot);
    let entry = table::get(cache, key.key, grace);
    pause::at(Window::ReadToFill);
    let token = match fault::on(Fault::TokenAfterSnapshot) {
        true => copies::token(cache, key),
        false => token,
    };
    if let (Some(token), Some(entry)) = (token, &entry) {
        copies::fill(cache, key, &token, entry);
    }
    entry
}

/// Keys whose place in the tier is asked for at once: more would push each other out of the
/// processor's nearest cache.
const BATCH: usize = 32;

/// The live entry under each of these keys, in their order.
pub fn get_many(cache: &Reading, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
    let (found, hot_hits) = find_many(cache, keys)?;
    let hits = found.iter().flatten().count() as u64;
    cache.count(Figure::HotHits, hot_hits);
    cache.count(Figure::TableHits, hits - hot_hits);
    cache.count(Figure::Misses, found.len() as u64 - hits);
    Ok(found)
}

/// The same uncounted, and how many of them come from the tier.
pub fn find_many(cache: &Reading, keys: &[Key]) -> Result<(Vec<Option<Entry>>, u64), Error> {
    let hashed = keys.iter().map(|&key| cache.hashed(key));
    let keys = &memory::collect(hashed)[..];
    let mut found = memory::list(keys.len());
    for batch in keys.chunks(BATCH) {
        hashed_key::prefetch_all(batch);
        for &key in batch {
            found.push(match cache.storage {
                Storage::Memory => memory_cache::get(cache, key, None)?,
                _ => copies::lookup(cache, key, None, Look::Uncounted),
            });
        }
        session::check_for_interrupts();
    }
    let hot_hits = found.iter().flatten().count();
    if cache.storage != Storage::Memory && hot_hits < keys.len() {
        get_many_from_table(cache, keys, &mut found);
    }
    Ok((found, hot_hits as u64))
}

/// Keys whose copies are filled again from one snapshot: few, so that little is committed meanwhile.
const REFILL: usize = 64;

/// Reads the missing entries from the table, all with one snapshot, and fills their copies.
fn get_many_from_table(cache: &Reading, keys: &[HashedKey], found: &mut [Option<Entry>]) {
    let places = memory::collect((0..keys.len()).filter(|&place| found[place].is_none()));
    let missing = memory::collect(places.iter().map(|&place| keys[place]));
    let mut refused = memory::list(0);
    read_and_fill(cache, &missing, |at, entry, is_filled| {
        found[places[at]] = Some(entry);
        if !is_filled {
            memory::push(&mut refused, missing[at]);
        }
    });
    if !fault::on(Fault::BatchNotRefilled) {
        refill(cache, &refused);
    }
}

/// Reads again, in small batches, the entries whose copies were refused because another session committed
/// in their stripe during a long read. The answer is not read from here: it stays that of one snapshot.
fn refill(cache: &Reading, refused: &[HashedKey]) {
    for batch in refused.chunks(REFILL) {
        if copies::token(cache, batch[0]).is_some() {
            read_and_fill(cache, batch, |_, _, _| ());
        }
        session::check_for_interrupts();
    }
}

/// Shows each entry that the table has under these keys, by the key's place, and whether its copy was
/// filled. The tokens come before the snapshot.
fn read_and_fill(cache: &Reading, keys: &[HashedKey], mut show: impl FnMut(usize, Entry, bool)) {
    let tokens = memory::collect(keys.iter().map(|&key| copies::token(cache, key)));
    let asked = memory::collect(keys.iter().map(|key| key.key));
    pause::at(Window::TokenToSnapshot);
    let rows = table::get_many(cache, &asked);
    pause::at(Window::ReadToFill);
    for (at, (&key, token)) in keys.iter().zip(tokens).enumerate() {
        let row = rows.binary_search_by(|(other, _)| other.bytes().cmp(key.bytes()));
        if let Ok(row) = row {
            let entry = rows[row].1;
            let is_filled = token.is_some_and(|token| copies::fill(cache, key, &token, &entry));
            show(at, entry, is_filled);
        }
    }
}

/// Shows a page of live entries in key order.
pub fn scan(cache: &Reading, page: &Page, show: &mut dyn FnMut(CopyOut<Row>)) -> Result<(), Error> {
    let page = &checked(cache, page)?;
    match cache.storage {
        Storage::Memory => pages::scan(cache, page, show)?,
        _ => table::scan(cache, page)
            .into_iter()
            .for_each(|row| show(&|| Some(row))),
    }
    Ok(())
}

/// Shows the keys of such a page.
pub fn keys(
    cache: &Reading,
    page: &Page,
    show: &mut dyn FnMut(CopyOut<Text>),
) -> Result<(), Error> {
    let page = &checked(cache, page)?;
    match cache.storage {
        Storage::Memory => pages::keys(cache, page, show)?,
        _ => table::keys(cache, page)
            .into_iter()
            .for_each(|key| show(&|| Some(key))),
    }
    Ok(())
}

/// The page in the cache's own spelling of keys; raises 0A000 for a prefix of keys that have none.
fn checked(cache: &Cache, page: &Page) -> Result<Page, Error> {
    cache.check_prefix(page.prefix)?;
    let after = page.after.filter(|after| !after.bytes().is_empty());
    Ok(Page {
        after: after.map(|after| cache.key_type.canonical(after)),
        ..*page
    })
}

/// How many live entries there are.
pub fn count(cache: &Reading) -> Result<i64, Error> {
    match cache.storage {
        Storage::Memory => memory_cache::count(cache),
        _ => Ok(table::count(cache)),
    }
}

/// Inserts or overwrites.
pub fn set(cache: &Cache, key: Key, entry: Entry) -> Result<(), Error> {
    cache.check_room(key)?;
    match cache.storage {
        Storage::Memory => memory_cache::set(cache, cache.hashed(key), &entry)?,
        _ => table::set(cache, key, entry.value, entry.deadline),
    }
    cache.count(Figure::Sets, 1);
    Ok(())
}

/// Inserts or overwrites several; of a key given twice the last value wins. Says how many.
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
            memory_cache::set(cache, cache.hashed(key), &Entry { value, deadline })?;
            session::check_for_interrupts();
        }
    } else {
        table::set_many(cache, &entries, deadline)?;
    }
    cache.count(Figure::Sets, entries.len() as u64);
    Ok(entries.len() as i64)
}

/// Inserts if no live entry is there.
pub fn add(cache: &Cache, key: Key, entry: Entry) -> Result<bool, Error> {
    cache.check_room(key)?;
    let done = match cache.storage {
        Storage::Memory => memory_cache::update(cache, cache.hashed(key), |present| {
            put_if(present.is_none(), entry)
        })?,
        _ => table::add(cache, key, entry.value, entry.deadline),
    };
    Ok(counted(cache, Figure::Sets, done))
}

/// Overwrites if a live entry is there.
pub fn replace(cache: &Cache, key: Key, entry: Entry) -> Result<bool, Error> {
    let done = match cache.storage {
        Storage::Memory => memory_cache::update(cache, cache.hashed(key), |present| {
            put_if(present.is_some(), entry)
        })?,
        _ => table::replace(cache, key, entry.value, entry.deadline),
    };
    Ok(counted(cache, Figure::Sets, done))
}

/// Overwrites if the live value equals `expected`; None equals a negative or an absent entry.
pub fn replace_if(
    cache: &Cache,
    key: Key,
    expected: Option<Stored>,
    entry: Entry,
) -> Result<bool, Error> {
    cache.check_room(key)?;
    let done = match cache.storage {
        Storage::Memory => memory_cache::update(cache, cache.hashed(key), |present| {
            put_if(same_value(present.and_then(|e| e.value), expected), entry)
        })?,
        _ => table::replace_if(cache, key, expected, entry.value, entry.deadline),
    };
    Ok(counted(cache, Figure::Sets, done))
}

fn put_if(condition: bool, entry: Entry) -> Result<Decision<bool>, Error> {
    Ok(match condition {
        true => Decision::Put(entry, true),
        false => Decision::Keep(false),
    })
}

fn same_value(one: Option<Stored>, other: Option<Stored>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => convert::equal(one, other),
        _ => false,
    }
}

/// Adds to a counter; the stored form of the sum. The deadline counts only where there is no live
/// entry.
pub fn increment(
    cache: &Cache,
    key: Key,
    delta: i64,
    deadline: Deadline,
) -> Result<Option<Stored>, Error> {
    cache.check_room(key)?;
    let sum = |value| sum(cache, value, delta);
    let done = match cache.storage {
        Storage::Memory => memory_cache::update(cache, cache.hashed(key), |present| {
            let stored = Some(sum(present.and_then(|entry| entry.value))?);
            let deadline = present.map_or(deadline, |entry| entry.deadline);
            let value = stored;
            Ok(Decision::Put(Entry { value, deadline }, stored))
        })?,
        _ => table::increment(cache, key, delta, deadline, sum)?,
    };
    cache.count(Figure::Sets, 1);
    Ok(done)
}

/// Adds to a counter that is there; the stored form of the sum, None where there is no live entry.
pub fn increment_existing(cache: &Cache, key: Key, delta: i64) -> Result<Option<Stored>, Error> {
    let sum = |value| sum(cache, value, delta);
    let done = match cache.storage {
        Storage::Memory => memory_cache::update(cache, cache.hashed(key), |present| {
            let Some(&Entry { value, deadline }) = present else {
                return Ok(Decision::Keep(None));
            };
            let value = Some(sum(value)?);
            Ok(Decision::Put(Entry { value, deadline }, value))
        })?,
        _ => table::increment_existing(cache, key, delta, sum)?,
    };
    counted(cache, Figure::Sets, done.is_some());
    Ok(done)
}

/// `value + delta` in the stored form of a counter.
fn sum(cache: &Cache, value: Option<Stored>, delta: i64) -> Result<Stored, Error> {
    let text = counter::sum(value.map(convert::result), delta)?;
    Ok(convert::argument(text, cache.value_type))
}

/// Gives a live entry a new deadline; what `project` makes of the entry. An error of `project`
/// leaves it.
pub fn touch<R>(
    cache: &Cache,
    key: Key,
    deadline: Deadline,
    project: impl Fn(&Entry) -> R,
) -> Result<Option<R>, Error> {
    match cache.storage {
        Storage::Memory => memory_cache::touch(cache, cache.hashed(key), deadline, project),
        _ => Ok(table::touch(cache, key, deadline).as_ref().map(project)),
    }
}

/// The live entry, for a `cache_touch` that leaves its deadline as it is. The cache is open.
pub fn get_to_touch(cache: &Cache, key: Key) -> Result<Option<Entry>, Error> {
    Ok(find(cache.relation, cache.hashed(key), Look::Uncounted)?.entry)
}

/// Counts the read of a call that also changes the entry it has found.
pub fn count_read(cache: &Cache, is_hit: bool) {
    cache.count(figure_of(cache, is_hit), 1);
}

/// Takes a live entry's deadline away.
pub fn persist(cache: &Cache, key: Key) -> Result<bool, Error> {
    match cache.storage {
        Storage::Memory => {
            Ok(memory_cache::touch(cache, cache.hashed(key), None, |_| ())?.is_some())
        }
        _ => Ok(table::persist(cache, key)),
    }
}

/// Removes an entry; says whether it was live.
pub fn delete(cache: &Cache, key: Key) -> Result<bool, Error> {
    let done = match cache.storage {
        Storage::Memory => memory_cache::delete(cache, cache.hashed(key))?,
        _ => {
            note_deletion(cache, key);
            table::delete(cache, key)
        }
    };
    Ok(counted(cache, Figure::Deletes, done))
}

/// Removes an entry; what `project` makes of it if it was live. An error of `project` leaves it
/// there.
pub fn take<R>(cache: &Cache, key: Key, project: impl Fn(&Entry) -> R) -> Result<Option<R>, Error> {
    let taken = match cache.storage {
        Storage::Memory => memory_cache::update(cache, cache.hashed(key), |present| {
            Ok(match present {
                Some(entry) => Decision::Remove(Some(project(entry))),
                None => Decision::Keep(None),
            })
        })?,
        _ => {
            note_deletion(cache, key);
            table::take(cache, key).as_ref().map(project)
        }
    };
    counted(cache, Figure::Deletes, taken.is_some());
    Ok(taken)
}

/// Removes a live entry whose value equals `expected`; None equals a negative entry.
pub fn delete_if(cache: &Cache, key: Key, expected: Option<Stored>) -> Result<bool, Error> {
    let done = match cache.storage {
        Storage::Memory => memory_cache::update(cache, cache.hashed(key), |present| {
            Ok(match present {
                Some(entry) if same_value(entry.value, expected) => Decision::Remove(true),
                _ => Decision::Keep(false),
            })
        })?,
        _ => table::delete_if(cache, key, expected),
    };
    Ok(counted(cache, Figure::Deletes, done))
}

/// Removes several; says how many were live.
pub fn delete_many(cache: &Cache, keys: impl Iterator<Item = Key>) -> Result<i64, Error> {
    let mut removed = 0;
    for (key, ()) in last_of_each(keys.map(|key| (key, ()))) {
        removed += i64::from(delete(cache, key)?);
        session::check_for_interrupts();
    }
    Ok(removed)
}

/// In the order of the keys, each key once: what comes last of it.
pub fn last_of_each<V>(entries: impl Iterator<Item = (Key, V)>) -> Vec<(Key, V)> {
    let mut numbered = memory::collect(entries.enumerate());
    numbered.sort_unstable_by(|(at, (key, _)), (other_at, (other, _))| {
        (key.bytes(), other_at).cmp(&(other.bytes(), at))
    });
    numbered.dedup_by(|(_, (key, _)), (_, (last, _))| key.bytes() == last.bytes());
    memory::collect(numbered.into_iter().map(|(_, entry)| entry))
}

/// Removes all entries whose key begins with `prefix`; says how many were live.
pub fn delete_prefix(cache: &Cache, prefix: Text) -> Result<i64, Error> {
    cache.check_prefix(prefix)?;
    let removed = match cache.storage {
        Storage::Memory => memory_cache::delete_prefix(cache, prefix)?,
        _ => {
            changes::note_removal(cache.relation, prefix.bytes());
            again::ask_for_end(cache);
            remove_many::delete_prefix(cache, prefix)
        }
    };
    cache.count(Figure::Deletes, removed as u64);
    Ok(removed)
}

/// A deletion that finds no row still says that what is being computed for the key is out of date.
fn note_deletion(cache: &Cache, key: Key) {
    if fault::on(Fault::DeletionNotNoted) {
        return;
    }
    changes::note_deletion(cache.relation, key.text().bytes());
    again::ask_for_end(cache);
}

fn counted(cache: &Cache, figure: Figure, done: bool) -> bool {
    cache.count(figure, u64::from(done));
    done
}
