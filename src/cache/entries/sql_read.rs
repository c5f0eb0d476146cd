//! Reads entries for the SQL functions. A read of a table cache first looks up the copy in the hot tier; after a miss
//! it reads the table and fills in the copy.
//!
//! A read takes the token for a copy before its snapshot. In the opposite order, a change that commits between the two
//! would leave a copy of the old row.

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use crate::cache::catalog::reading::Reading;
use crate::cache::catalog::registry::{self, Cache, Storage};
use crate::cache::memory::ordered_pages;
use crate::cache::memory::tier_ops::{self as memory_cache, CopyOut, Row};
use crate::cache::model::entry::Page;
use crate::cache::model::key::Key;
use crate::cache::open;
use crate::cache::table::{copies, row_ops as table};
use crate::cache::tier::hashed_key::{self, HashedKey};
use crate::error::Error;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::memory;
use crate::pg::session;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::pause::{self, Window};
use crate::pg::shmem::slot::Counter;
use crate::pg::value::datum::Text;

pub use crate::cache::model::entry::{Entry, Look};

/// The result of a read, and the counter to increment for it.
#[derive(Clone, Copy)]
pub struct Found {
    pub entry: Option<Entry>,
    pub counter: Counter,
}

/// Returns the live entry of a key. The caller has checked the privileges.
pub fn get(relation: Oid, key: HashedKey) -> Result<Option<Entry>, Error> {
    let found = look(relation, key, Privileges::SELECT, Look::Counted, |_| None);
    found.map(|found| found.entry)
}

/// Returns the live entry of a key and the counter of the read. With [`Look::Uncounted`] the caller counts the read.
pub fn find(relation: Oid, key: HashedKey, counts: Look) -> Result<Found, Error> {
    look(relation, key, Privileges::SELECT, counts, |_| None)
}

/// Returns the entry of a key if it is live, or stale but within the cache's grace. Requires the privileges in `needs`.
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
                counter: Counter::HotHits,
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

/// Builds the result of a read that the hot tier's copies did not answer. Counts the read if `counts` says so.
fn seen(cache: &Cache, entry: Option<Entry>, counts: Look) -> Found {
    let counter = figure_of(cache, entry.is_some());
    if counts == Look::Counted {
        cache.count(counter, 1);
    }
    Found { entry, counter }
}

/// Returns the counter of a read that the hot tier's copies did not answer.
fn figure_of(cache: &Cache, is_hit: bool) -> Counter {
    match (is_hit, cache.storage) {
        (false, _) => Counter::Misses,
        (true, Storage::Memory) => Counter::HotHits,
        (true, _) => Counter::TableHits,
    }
}

/// Reads the entry from the table and fills in its copy. Takes the token before the snapshot of the read.
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

/// The number of keys that are prefetched from the tier at once. More keys would evict each other from the L1 cache.
const BATCH: usize = 32;

/// Returns the live entry of each key, in the order of the keys; None for a key without a live entry.
pub fn get_many(cache: &Reading, keys: &[Key]) -> Result<Vec<Option<Entry>>, Error> {
    let (found, hot_hits) = find_many(cache, keys)?;
    let hits = found.iter().flatten().count() as u64;
    cache.count(Counter::HotHits, hot_hits);
    cache.count(Counter::TableHits, hits - hot_hits);
    cache.count(Counter::Misses, found.len() as u64 - hits);
    Ok(found)
}

/// Reads entries as [`get_many`] does, without counting the reads. Also returns how many entries come from the tier.
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

/// The number of keys in one batch of `refill`. It is small, so that few changes commit during the read of a batch.
const REFILL: usize = 64;

/// Reads the missing entries from the table, all from one snapshot, and fills in their copies.
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

/// Reads again, in small batches, the entries whose copies were not filled in, usually because another session
/// committed in their stripe during a long read. Skips a batch if its first key gets no token. The results of these
/// reads are not returned, because all results of the call come from one snapshot.
fn refill(cache: &Reading, refused: &[HashedKey]) {
    for batch in refused.chunks(REFILL) {
        if copies::token(cache, batch[0]).is_some() {
            read_and_fill(cache, batch, |_, _, _| ());
        }
        session::check_for_interrupts();
    }
}

/// Passes each entry that the table has under these keys to `show`, with the index of its key and whether the copy was
/// filled in. Takes the tokens before the snapshot.
fn read_and_fill(cache: &Reading, keys: &[HashedKey], mut show: impl FnMut(usize, Entry, bool)) {
    let tokens = memory::collect(keys.iter().map(|&key| copies::token(cache, key)));
    let names = memory::collect(keys.iter().map(|key| key.key));
    pause::at(Window::TokenToSnapshot);
    let rows = table::get_many(cache, &names);
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

/// Passes a page of live entries to `show`, in key order.
pub fn scan(cache: &Reading, page: &Page, show: &mut dyn FnMut(CopyOut<Row>)) -> Result<(), Error> {
    let page = &checked(cache, page)?;
    match cache.storage {
        Storage::Memory => ordered_pages::scan(cache, page, show)?,
        _ => table::scan(cache, page)
            .into_iter()
            .for_each(|row| show(&|| Some(row))),
    }
    Ok(())
}

/// Passes the keys of a page of live entries to `show`, in key order.
pub fn keys(
    cache: &Reading,
    page: &Page,
    show: &mut dyn FnMut(CopyOut<Text>),
) -> Result<(), Error> {
    let page = &checked(cache, page)?;
    match cache.storage {
        Storage::Memory => ordered_pages::keys(cache, page, show)?,
        _ => table::keys(cache, page)
            .into_iter()
            .for_each(|key| show(&|| Some(key))),
    }
    Ok(())
}

/// Returns the page with its start key in the canonical form of the cache. Raises 0A000 for a prefix if the keys are
/// not text.
fn checked(cache: &Cache, page: &Page) -> Result<Page, Error> {
    cache.check_prefix(page.prefix)?;
    let after = page.after.filter(|after| !after.bytes().is_empty());
    Ok(Page {
        after: after.map(|after| cache.key_type.canonical(after)),
        ..*page
    })
}

/// Returns the number of live entries.
pub fn count(cache: &Reading) -> Result<i64, Error> {
    match cache.storage {
        Storage::Memory => memory_cache::count(cache),
        _ => Ok(table::count(cache)),
    }
}

/// Counts the read of a call that also changes the entry. `is_hit` is true if the call has found an entry.
pub fn count_read(cache: &Cache, is_hit: bool) {
    cache.count(figure_of(cache, is_hit), 1);
}
