//! Implements [`Store`] for table caches, within a transaction.
//!
//! A Redis command has the same privileges, policies, triggers, locks, marks and notifications as the SQL function with
//! the same meaning.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use pgcache_store::NO_DEADLINE;

use super::buffers::{Buffers, value};
use super::sql_read::{self, Look};
use super::store::{
    Change, Copied, EntryMeta, Failed, If, NewEntry, OutOfMemory, Present, Store, Value,
};
use super::touch_after;
use crate::cache::catalog::registry::Cache;
use crate::cache::commit::changes;
use crate::cache::memory::raw;
use crate::cache::model::deadline::Deadline;
use crate::cache::model::entry::Entry;
use crate::cache::model::key::{self, Key};
use crate::cache::open::{self, again, removal};
use crate::cache::table::change::{self, Seek};
use crate::cache::table::row_ops;
use crate::cache::tier::hashed_key::HashedKey;
use crate::error::Error;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session;
use crate::pg::session::clock::Timestamp;
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::slot::Counter;
use crate::pg::table::write::RowAction;
use crate::pg::value::convert;
use crate::pg::value::datum::{Bytes, Text, ValueType};
use crate::pg::value::stored::Stored;
use crate::pg::{encoding, memory};

/// The bytes of a row besides its key and value: header, line pointer, deadline.
const ROW: usize = 40;

/// The entries of a table cache.
pub struct Rows<'c> {
    /// The cache as the session has loaded it.
    pub cache: &'c Cache,
    opened: Opened<'c>,
    /// True if user-defined triggers and policies may run, because the transaction has the settings for them.
    pub user_code: bool,
    /// The number of reads that a copy in the tier has answered and that no counter includes yet.
    hot_hits: Cell<u64>,
}

/// The cache under a lock on its table. The transaction keeps the lock until it ends.
enum Opened<'c> {
    Now(&'c Cache),
    /// The cache is opened at the first change of the transaction, which sets the cell.
    Later(&'c OnceCell<Rc<Cache>>),
}

impl<'c> Rows<'c> {
    /// Returns the rows of a cache that is already open for changes.
    pub fn of(cache: &'c Cache) -> Rows<'c> {
        Rows {
            cache,
            opened: Opened::Now(cache),
            user_code: true,
            hot_hits: Cell::new(0),
        }
    }

    /// Returns the rows of a cache that is open for reading; the first change opens it for changes.
    pub fn open_later(
        cache: &'c Cache,
        opened: &'c OnceCell<Rc<Cache>>,
        user_code: bool,
    ) -> Rows<'c> {
        Rows {
            cache,
            opened: Opened::Later(opened),
            user_code,
            hot_hits: Cell::new(0),
        }
    }

    /// Returns the cache, which must be open for changes.
    pub fn changed(&self) -> Result<&'c Cache, Failed> {
        removal::settle();
        self.opened().ok_or(Failed::NotOpen)
    }

    /// Returns the cache if it is already open for changes.
    pub fn opened(&self) -> Option<&'c Cache> {
        match self.opened {
            Opened::Now(cache) => Some(cache),
            Opened::Later(opened) => opened.get().map(|cache| &**cache),
        }
    }

    /// Sets the cache after it has been opened for changes.
    pub fn set_opened(&self, cache: Rc<Cache>) {
        if let Opened::Later(opened) = self.opened {
            let _ = opened.set(cache);
        }
    }

    /// Returns a value that every cache of this type accepts.
    pub fn smallest(&self) -> &'static [u8] {
        match self.cache.value_type {
            ValueType::Json => b"null",
            ValueType::Text | ValueType::Bytes => b"",
        }
    }

    /// Returns the key for a write. Raises an error if no entry can have the key.
    pub fn new_key(&self, key: &Option<HashedKey>) -> Result<Key, Failed> {
        let key = key.as_ref().ok_or(Failed::Key)?.key;
        self.cache.check_room(key)?;
        Ok(key)
    }

    /// Converts a value to the cache's own type.
    pub fn stored(&self, value: &Value) -> Result<Stored, Failed> {
        let cache = self.opened().unwrap_or(self.cache);
        match (value, cache.value_type) {
            (Value::Stored(value), _) => Ok(*value),
            (Value::Spelled(value), ValueType::Bytes) => Ok(Stored::of(Bytes::new(value))),
            (Value::Spelled(value), _) if !encoding::is_text(value) => Err(Error::NotText.into()),
            (Value::Spelled(value), ValueType::Text) => Ok(Stored::of(Text::new(value))),
            (Value::Spelled(value), ValueType::Json) => Ok(convert::json(Text::new(value))?),
        }
    }

    fn row(&self, new: &NewEntry<'_>) -> Result<Entry, Failed> {
        let value = new.value.as_ref().map(|value| self.stored(value));
        Ok(Entry {
            value: value.transpose()?,
            deadline: deadline_of(new.deadline),
        })
    }

    fn find(&self, key: &Option<HashedKey>) -> Result<Option<Entry>, Failed> {
        let Some(key) = key else {
            return Ok(None);
        };
        let found = sql_read::find(self.cache.relation, *key, Look::Uncounted)?;
        let is_hot = found.counter == Counter::HotHits;
        self.hot_hits.set(u64::from(is_hot));
        note_deadline(found.entry.as_ref());
        Ok(found.entry)
    }

    /// Returns the live entry of each key.
    fn find_each<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Vec<Option<Entry>>, Failed> {
        let reading = open::lock_to_read(self.cache.relation, Privileges::SELECT)?;
        let all = memory::collect(keys.map(|key| self.key(key).map(|key| key.key)));
        let present = memory::collect(all.iter().flatten().copied());
        let (found, hot_hits) = sql_read::find_many(&reading, &present)?;
        self.hot_hits.set(hot_hits);
        let mut found = found
            .into_iter()
            .inspect(|entry| note_deadline(entry.as_ref()));
        Ok(memory::collect(all.iter().map(|key| match key {
            Some(_) => found.next().flatten(),
            None => None,
        })))
    }

    /// Returns the live entry of a key if a touch would keep its deadline (`touch_after`).
    fn left_as_it_is(
        &self,
        key: &Option<HashedKey>,
        deadline: Timestamp,
    ) -> Result<Option<Entry>, Failed> {
        let (cache, Some(key)) = (self.changed()?, key) else {
            return Ok(None);
        };
        let left = touch_after::left_as_it_is(cache, *key, deadline_of(deadline))?;
        let is_hot = left.is_some_and(|found| found.counter == Counter::HotHits);
        self.hot_hits.set(u64::from(is_hot));
        Ok(left.and_then(|found| found.entry))
    }

    /// Applies `action` to an entry if `allows` returns true. Returns whether the entry was changed.
    fn change_if(
        &self,
        key: &Option<HashedKey>,
        seek: Seek,
        action: RowAction,
        allows: impl Fn(Option<&dyn Present>) -> bool,
    ) -> Result<bool, Failed> {
        let cache = self.changed()?;
        let Some(key) = key else {
            return Ok(false);
        };
        let changed = change::change(cache, key.key, seek, |entry| {
            let allowed = allows(entry.as_ref().map(|entry| entry as &dyn Present));
            let action = if allowed { action } else { RowAction::Keep };
            (action, allowed)
        });
        Ok(changed.unwrap_or(false))
    }

    /// Locks the row of a key, if one exists.
    pub fn hold_key(&self, key: &Option<HashedKey>) -> Result<(), Failed> {
        self.change_if(key, Seek::Any, RowAction::Keep, |_| false)?;
        Ok(())
    }

    /// Copies an entry to `found` and lets `decide` choose the change.
    fn decided<R, E: From<Failed>>(
        &self,
        key: &Option<HashedKey>,
        entry: Option<Entry>,
        Buffers { found, made }: &mut Buffers,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Result<(Change, R), E>,
    ) -> Result<(RowAction, R), E> {
        made.clear();
        let meta = entry.map(|entry| copy_out(&entry, found));
        let meta = meta.transpose().map_err(Failed::from)?;
        let present = meta.map(|meta| (meta, value(&meta, found)));
        let (change, answer) = decide(present, made)?;
        let action = match change {
            Change::Keep => RowAction::Keep,
            Change::Remove => RowAction::Remove,
            Change::Touch(deadline) => RowAction::Redate(deadline_of(deadline)),
            Change::Put(deadline) => {
                self.new_key(key)?;
                RowAction::Put(self.row(&NewEntry::spelled(made, deadline))?)
            }
        };
        Ok((action, answer))
    }
}

impl Store for Rows<'_> {
    type Key<'k> = Option<HashedKey>;

    /// Returns None for bytes that cannot be a key of this cache.
    fn key(&self, bytes: &[u8]) -> Option<HashedKey> {
        let fits = (1..=key::MAX_BYTES).contains(&bytes.len()) && encoding::is_text(bytes);
        let text = fits.then(|| Text::new(bytes))?;
        let canonical = self.cache.key_type.canonical_if_any(text)?;
        Some(self.cache.hashed(Key::stored(canonical)))
    }

    fn key_of(&self, key: &Key) -> Option<HashedKey> {
        Some(self.cache.hashed(*key))
    }

    fn spelled<'k>(&self, key: &'k Option<HashedKey>) -> Option<&'k [u8]> {
        key.as_ref().map(HashedKey::bytes)
    }

    fn check_length(&self, _: &Option<HashedKey>, _: usize) -> Result<(), Failed> {
        Ok(())
    }

    /// Adds to a counter. A caller counts all hits as hits of the tier, so this function splits the hits: `hot_hits` of
    /// them are hits of the tier, and the rest are hits of the table.
    fn tally(&self, counter: Counter, times: u64) {
        if counter == Counter::HotHits {
            let hot = self.hot_hits.take().min(times);
            self.cache.count(Counter::HotHits, hot);
            self.cache.count(Counter::TableHits, times - hot);
        } else {
            self.cache.count(counter, times);
        }
        raw::note_read(counter, times);
    }

    fn get(
        &self,
        key: &Option<HashedKey>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<EntryMeta>, Failed> {
        let entry = self.find(key)?;
        Ok(entry.map(|entry| copy_out(&entry, buffer)).transpose()?)
    }

    fn get_each<'k, E: From<Failed>>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        _: &mut Buffers,
        mut each: impl FnMut(Result<Option<EntryMeta>, OutOfMemory>, &[u8]) -> Result<bool, E>,
    ) -> Result<i64, E> {
        let mut hits = 0;
        for entry in self.find_each(keys)? {
            let printed = entry.and_then(|entry| entry.value).map(printed);
            let bytes = printed.as_ref().map_or(&[][..], |value| value.bytes());
            let meta = entry.map(|entry| meta_of(&entry, printed.as_ref()));
            hits += i64::from(each(Ok(meta), bytes)?);
        }
        Ok(hits)
    }

    fn look(&self, key: &Option<HashedKey>) -> Result<Option<EntryMeta>, Failed> {
        Ok(self.find(key)?.map(|entry| entry.meta()))
    }

    fn look_each<'k, E: From<Failed>>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        mut each: impl FnMut(Option<EntryMeta>) -> Result<bool, E>,
    ) -> Result<i64, E> {
        let mut hits = 0;
        for entry in self.find_each(keys)? {
            hits += i64::from(each(entry.map(|entry| entry.meta()))?);
        }
        Ok(hits)
    }

    fn look_if(
        &self,
        key: &Option<HashedKey>,
        holds: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed> {
        Ok(self.find(key)?.is_some_and(|entry| holds(&entry)))
    }

    fn size(&self, key: &Option<HashedKey>) -> Result<Option<u64>, Failed> {
        let length = key.map_or(0, |key| key.bytes().len());
        let meta = self.look(key)?;
        Ok(meta.map(|meta| (ROW + length + meta.length) as u64))
    }

    /// Stores an entry whose deadline has passed as an expired row instead of removing the row, because a role that
    /// may overwrite rows need not have the privilege to delete them.
    fn put(
        &self,
        key: &Option<HashedKey>,
        new: NewEntry<'_>,
        condition: If<'_>,
    ) -> Result<bool, Failed> {
        let row_key = match condition {
            If::Present => key.as_ref().ok_or(Failed::Key)?.key,
            _ => self.new_key(key)?,
        };
        let row = self.row(&new)?;
        let Entry { value, deadline } = row;
        let cache = self.changed()?;
        let put_if = |seek| {
            self.change_if(key, seek, RowAction::Put(row), |entry| {
                condition.holds(entry)
            })
        };
        let done = match condition {
            If::Always => row_ops::set(cache, row_key, value, deadline),
            If::Absent => row_ops::add(cache, row_key, value, deadline),
            If::Present => row_ops::replace(cache, row_key, value, deadline),
            If::Equal(_) => put_if(Seek::Visible)?,
            If::NotEqual(_) | If::NoValue => put_if(Seek::Any)?,
        };
        self.tally(Counter::Sets, u64::from(done));
        Ok(done)
    }

    fn change<R, E: From<Failed>>(
        &self,
        key: &Option<HashedKey>,
        buffers: &mut Buffers,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Result<(Change, R), E>,
    ) -> Result<R, E> {
        let cache = self.changed()?;
        let Some(hashed) = key else {
            buffers.made.clear();
            return match decide(None, &mut buffers.made)? {
                (Change::Put(_), _) => Err(Failed::Key.into()),
                (_, answer) => Ok(answer),
            };
        };
        let changed = change::change(cache, hashed.key, Seek::Any, |entry| {
            match self.decided(key, entry, buffers, &decide) {
                Ok((action, answer)) => {
                    let counter = match (&action, &entry) {
                        (RowAction::Put(_), _) => Some(Counter::Sets),
                        (RowAction::Remove, Some(_)) => Some(Counter::Deletes),
                        _ => None,
                    };
                    (action, Ok((answer, counter)))
                }
                Err(error) => (RowAction::Keep, Err(error)),
            }
        });
        let (answer, counter) = changed.ok_or(Failed::NotCarriedOut)??;
        if let Some(counter) = counter {
            self.tally(counter, 1);
        }
        Ok(answer)
    }

    fn touch(
        &self,
        key: &Option<HashedKey>,
        deadline: Timestamp,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed> {
        let action = RowAction::Redate(deadline_of(deadline));
        self.change_if(key, Seek::Visible, action, |entry| {
            entry.is_some_and(&allows)
        })
    }

    fn slide(&self, key: &Option<HashedKey>, deadline: Timestamp) -> Result<bool, Failed> {
        Ok(self.left_as_it_is(key, deadline)?.is_some() || self.touch(key, deadline, |_| true)?)
    }

    fn get_if_left(
        &self,
        key: &Option<HashedKey>,
        deadline: Timestamp,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<EntryMeta>, Failed> {
        let Some(entry) = self.left_as_it_is(key, deadline)? else {
            return Ok(None);
        };
        Ok(Some(copy_out(&entry, buffer)?))
    }

    fn remove(
        &self,
        key: &Option<HashedKey>,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed> {
        let allows = |entry: Option<&dyn Present>| entry.is_some_and(&allows);
        let removed = self.change_if(key, Seek::ToRemove, RowAction::Remove, allows)?;
        self.tally(Counter::Deletes, u64::from(removed));
        Ok(removed)
    }

    fn remove_if(&self, key: &Option<HashedKey>, condition: If<'_>) -> Result<bool, Failed> {
        let expected = match condition {
            If::Equal(Value::Stored(expected)) => Some(expected),
            If::NoValue => None,
            _ => return self.remove(key, |entry| condition.holds(Some(entry))),
        };
        let (cache, Some(key)) = (self.changed()?, key) else {
            return Ok(false);
        };
        let removed = row_ops::delete_if(cache, key.key, expected);
        self.tally(Counter::Deletes, u64::from(removed));
        Ok(removed)
    }

    fn take(
        &self,
        key: &Option<HashedKey>,
        buffers: &mut Buffers,
    ) -> Result<Option<EntryMeta>, Failed> {
        let cache = self.changed()?;
        let Some(key) = key else {
            return Ok(None);
        };
        let taken = take(cache, key.key);
        // The row is already deleted. If the memory for its copy cannot be allocated, the error rolls the deletion
        // back.
        Ok(
            taken.map(|entry| match copy_out(&entry, &mut buffers.found) {
                Ok(meta) => meta,
                Err(OutOfMemory) => memory::exhausted(entry.meta().length),
            }),
        )
    }

    fn delete_each<'k>(&self, keys: impl Iterator<Item = &'k [u8]> + Clone) -> Result<i64, Failed> {
        let cache = self.changed()?;
        let keys = keys.filter_map(|key| Some(self.key(key)?.key));
        each_once(keys, |key| Ok(delete(cache, key)))
    }

    fn in_order(&self, keys: &mut [&[u8]]) {
        match self.cache.key_type.is_text() {
            true => keys.sort_unstable(),
            false => keys.sort_by_cached_key(|key| {
                let key = self.key(key);
                self.spelled(&key).map(<[u8]>::to_vec)
            }),
        }
    }

    fn hold(&self, keys: &[&[u8]]) -> Result<(), Failed> {
        let cache = self.changed()?;
        let keys = keys.iter().filter_map(|key| Some((self.key(key)?.key, ())));
        for (key, ()) in last_of_each(keys) {
            change::change(cache, key, Seek::Any, |_| (RowAction::Keep, ()));
        }
        Ok(())
    }

    fn set_all<'k>(
        &self,
        pairs: impl Iterator<Item = (&'k [u8], &'k [u8])> + Clone,
        deadline: Timestamp,
        new_only: bool,
    ) -> Result<bool, Failed> {
        let mut entries = memory::list(pairs.clone().count());
        for (key, value) in pairs {
            let value = self.stored(&Value::Spelled(value))?;
            entries.push((self.new_key(&self.key(key))?, value));
        }
        let (cache, deadline) = (self.changed()?, deadline_of(deadline));
        if !new_only {
            set_many(cache, &last_of_each(entries.into_iter()), deadline)?;
            return Ok(true);
        }
        let entries = last_of_each(entries.into_iter());
        for (at, (key, value)) in entries.iter().enumerate() {
            if !row_ops::add(cache, *key, Some(*value), deadline) {
                // Another session has added this key after this session's check. No other session has seen the rows
                // that this loop has added.
                let own = entries.iter().take(at).map(|&(key, _)| key);
                each_once(own, |key| Ok::<_, Failed>(delete(cache, key)))?;
                return Ok(false);
            }
        }
        self.tally(Counter::Sets, entries.len() as u64);
        Ok(true)
    }
}

/// Removes an entry and returns whether it was live.
pub fn delete(cache: &Cache, key: Key) -> bool {
    note_deletion(cache, key);
    let done = row_ops::delete(cache, key);
    cache.count(Counter::Deletes, u64::from(done));
    done
}

/// Removes an entry and returns it if it was live.
pub fn take(cache: &Cache, key: Key) -> Option<Entry> {
    note_deletion(cache, key);
    let taken = row_ops::take(cache, key);
    cache.count(Counter::Deletes, u64::from(taken.is_some()));
    taken
}

/// Calls `act` once for each key, in key order. Returns the number of keys for which `act` returned true.
pub fn each_once<E>(
    keys: impl Iterator<Item = Key>,
    mut act: impl FnMut(Key) -> Result<bool, E>,
) -> Result<i64, E> {
    let mut done = 0;
    for (key, ()) in last_of_each(keys.map(|key| (key, ()))) {
        done += i64::from(act(key)?);
        session::check_for_interrupts();
    }
    Ok(done)
}

/// Inserts or overwrites several entries, which are in key order and contain each key once.
pub fn set_many(cache: &Cache, entries: &[(Key, Stored)], deadline: Deadline) -> Result<(), Error> {
    row_ops::set_many(cache, entries, deadline)?;
    cache.count(Counter::Sets, entries.len() as u64);
    Ok(())
}

/// Notes a deletion even if it finds no row, because a value that a session is computing for the key is out of date.
fn note_deletion(cache: &Cache, key: Key) {
    if fault::on(Fault::DeletionNotNoted) {
        return;
    }
    changes::note_deletion(cache.relation, key.text().bytes());
    again::request_end(cache);
}

/// Returns the last entry of each key, in key order.
pub fn last_of_each<V>(entries: impl Iterator<Item = (Key, V)>) -> Vec<(Key, V)> {
    let mut numbered = memory::collect(entries.enumerate());
    numbered.sort_unstable_by(|(at, (key, _)), (other_at, (other, _))| {
        (key.bytes(), other_at).cmp(&(other.bytes(), at))
    });
    numbered.dedup_by(|(_, (key, _)), (_, (last, _))| key.bytes() == last.bytes());
    memory::collect(numbered.into_iter().map(|(_, entry)| entry))
}

/// Implements the trait for an entry whose row is locked or was read.
impl Present for Entry {
    fn meta(&self) -> EntryMeta {
        let printed = self.value.map(printed);
        meta_of(self, printed.as_ref())
    }

    fn has(&self, value: &Value) -> bool {
        match (value, self.value) {
            (_, None) => false,
            (Value::Stored(value), Some(own)) => convert::equal(own, *value),
            (Value::Spelled(value), Some(own)) => printed(own).bytes() == *value,
        }
    }
}

/// Returns the value in the form that clients receive: jsonb as text.
fn printed(value: Stored) -> Stored {
    match value.value_type() {
        ValueType::Json => Stored::of(convert::result::<Text>(value)),
        _ => value,
    }
}

fn meta_of(entry: &Entry, printed: Option<&Stored>) -> EntryMeta {
    EntryMeta {
        deadline: entry.deadline.unwrap_or(NO_DEADLINE),
        negative: printed.is_none(),
        length: printed.map_or(0, |value| value.bytes().len()),
    }
}

fn copy_out(entry: &Entry, buffer: &mut Vec<u8>) -> Result<EntryMeta, OutOfMemory> {
    let printed = entry.value.map(printed);
    let bytes = printed.as_ref().map_or(&[][..], |value| value.bytes());
    raw::grow(buffer, bytes.len())?;
    if let Some(place) = buffer.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
    Ok(meta_of(entry, printed.as_ref()))
}

fn deadline_of(moment: Timestamp) -> Deadline {
    (moment != NO_DEADLINE).then_some(moment)
}

/// Notes the deadline of an entry that a client has read, so that the client is notified when the entry expires.
fn note_deadline(entry: Option<&Entry>) {
    if let Some(deadline) = entry.and_then(|entry| entry.deadline) {
        raw::note_soonest(deadline);
    }
}
