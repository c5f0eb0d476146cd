//! Implements [`Store`] for memory caches, and for the copies of a table's entries that the Redis protocol reads.
//!
//! A change is decided under the lock of the key's partition. A decision that may raise an error, for example a
//! comparison of jsonb values, is made on a copy of the entry outside the lock. The change is then made only if the
//! entry still equals the copy.

use pgcache_store::{EntryRef, NO_DEADLINE};

use super::buffers::{Buffers, value, with_buffers};
use super::store::{
    Change, Copied, EntryMeta, Failed, If, NewEntry, OutOfMemory, Present, Store, Value,
    check_value, is_unchanged,
};
use crate::cache::memory::raw::{self, Entries, RawKey, Written};
use crate::cache::memory::tier_ops::note;
use crate::cache::model::entry::Entry;
use crate::cache::model::key::Key;
use crate::pg::events::RowChange;
use crate::pg::session::clock::Timestamp;
use crate::pg::shmem::slot::Counter;
use crate::pg::value::convert;
use crate::pg::value::datum::{Text, ValueType};
use crate::pg::value::stored::Stored;

impl Present for EntryRef<'_> {
    #[inline]
    fn meta(&self) -> EntryMeta {
        EntryMeta::of(&self.header())
    }

    #[inline]
    fn has(&self, value: &Value) -> bool {
        !self.header().negative && self.value_equals(value.bytes())
    }
}

/// The number of keys that are prefetched at the same time.
const AHEAD: usize = 32;

impl Store for Entries<'_> {
    type Key<'k> = RawKey<'k>;

    #[inline]
    fn key<'k>(&self, bytes: &'k [u8]) -> RawKey<'k> {
        Entries::key(self, bytes)
    }

    #[inline]
    fn key_of<'k>(&self, key: &'k Key) -> RawKey<'k> {
        Entries::key(self, key.bytes())
    }

    #[inline]
    fn spelled<'k>(&self, key: &'k RawKey) -> Option<&'k [u8]> {
        Some(key.bytes)
    }

    fn check_length(&self, key: &RawKey, length: usize) -> Result<(), Failed> {
        Ok(Entries::check_length(self, key, length)?)
    }

    #[inline]
    fn tally(&self, counter: Counter, times: u64) {
        Entries::tally(self, counter, times);
    }

    #[inline]
    fn get(&self, key: &RawKey, buffer: &mut Vec<u8>) -> Result<Option<EntryMeta>, Failed> {
        Ok(Entries::get(self, key, buffer)?)
    }

    fn get_each<'k, E: From<Failed>>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        buffers: &mut Buffers,
        mut each: impl FnMut(Result<Option<EntryMeta>, OutOfMemory>, &[u8]) -> Result<bool, E>,
    ) -> Result<i64, E> {
        each_key(self, keys, |key| {
            let meta = Entries::get(self, &Entries::key(self, key), &mut buffers.found);
            each(meta, &buffers.found)
        })
    }

    fn epoch(&self, key: &RawKey) -> u64 {
        Entries::epoch(self, key)
    }

    fn look(&self, key: &RawKey) -> Result<Option<EntryMeta>, Failed> {
        Ok(Entries::look(self, key))
    }

    fn look_each<'k, E: From<Failed>>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        mut each: impl FnMut(Option<EntryMeta>) -> Result<bool, E>,
    ) -> Result<i64, E> {
        each_key(self, keys, |key| {
            each(Entries::look(self, &Entries::key(self, key)))
        })
    }

    fn look_if(&self, key: &RawKey, holds: impl Fn(&dyn Present) -> bool) -> Result<bool, Failed> {
        Ok(Entries::look_if(self, key, |entry| holds(entry)))
    }

    fn use_rank(&self, key: &RawKey) -> u32 {
        Entries::use_rank(self, key)
    }

    fn size(&self, key: &RawKey) -> Result<Option<u64>, Failed> {
        Ok(Entries::size(self, key))
    }

    #[inline]
    fn put(&self, key: &RawKey, new: NewEntry<'_>, condition: If<'_>) -> Result<bool, Failed> {
        match json_of(self, &condition) {
            Some(expected) => if_equal(self, key, expected, |present| {
                put_if(self, key, new, Unchanged(present))
            }),
            None => put_if(self, key, new, condition),
        }
    }

    #[inline]
    fn put_or_remove(
        &self,
        key: &RawKey,
        new: NewEntry<'_>,
        condition: If<'_>,
    ) -> Result<bool, Failed> {
        put_or_remove_if(self, key, new, condition)
    }

    fn change<R, E: From<Failed>>(
        &self,
        key: &RawKey,
        buffers: &mut Buffers,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Result<(Change, R), E>,
    ) -> Result<R, E> {
        loop {
            let meta = Entries::get(self, key, &mut buffers.found).map_err(Failed::from)?;
            let present = meta.map(|meta| (meta, value(&meta, &buffers.found)));
            buffers.made.clear();
            let is_json = self.value_type() == ValueType::Json;
            let printed = present.filter(|_| is_json).map(printed);
            let shown = printed.as_ref().map(|(meta, text)| (*meta, text.bytes()));
            let (change, answer) = decide(shown.or(present), &mut buffers.made)?;
            if is_json && matches!(change, Change::Put(_)) {
                parse(&mut buffers.made)?;
            }
            let is_it = |entry: &dyn Present| is_unchanged(Some(entry), present);
            let done = match change {
                Change::Keep => true,
                Change::Put(deadline) => {
                    check_value(self.value_type(), &buffers.made).map_err(Failed::from)?;
                    let new = NewEntry::spelled(&buffers.made, deadline);
                    put_or_remove_if(self, key, new, Unchanged(present))?
                }
                Change::Touch(deadline) => self.touch(key, deadline, is_it)?,
                Change::Remove if present.is_none() => self.void_lease_if_absent(key),
                Change::Remove => self.remove(key, is_it)?,
            };
            if done {
                return Ok(answer);
            }
            self.check_for_interrupts();
        }
    }

    fn touch(
        &self,
        key: &RawKey,
        deadline: Timestamp,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed> {
        let touched = Entries::touch_at(self, key, deadline, |entry| allows(entry));
        if touched {
            note(self.cache(), key.bytes, RowChange::Set);
        }
        Ok(touched)
    }

    fn remove(&self, key: &RawKey, allows: impl Fn(&dyn Present) -> bool) -> Result<bool, Failed> {
        let removed = Entries::remove_at(self, key, |entry| allows(entry));
        Ok(noted_removal(self, key, removed))
    }

    fn remove_if(&self, key: &RawKey, condition: If<'_>) -> Result<bool, Failed> {
        match json_of(self, &condition) {
            Some(expected) => if_equal(self, key, expected, |present| {
                self.remove(key, |entry| is_unchanged(Some(entry), present))
            }),
            None => self.remove(key, |entry| condition.holds(Some(entry))),
        }
    }

    fn take(&self, key: &RawKey, buffers: &mut Buffers) -> Result<Option<EntryMeta>, Failed> {
        self.change(key, buffers, |present, _| {
            Ok((Change::Remove, present.map(|(meta, _)| meta)))
        })
    }

    fn delete_each<'k>(&self, keys: impl Iterator<Item = &'k [u8]> + Clone) -> Result<i64, Failed> {
        each_key(self, keys, |key| Ok(delete(self, &Entries::key(self, key))))
    }

    fn in_order(&self, _: &mut [&[u8]]) {}

    fn hold(&self, _: &[&[u8]]) -> Result<(), Failed> {
        Ok(())
    }

    fn set_all<'k>(
        &self,
        pairs: impl Iterator<Item = (&'k [u8], &'k [u8])> + Clone,
        deadline: Timestamp,
        _: bool,
    ) -> Result<bool, Failed> {
        each_ahead(
            self,
            pairs,
            |(key, _)| key,
            |(key, value)| {
                let new = NewEntry::spelled(value, deadline);
                self.put_or_remove(&Entries::key(self, key), new, If::Always)
            },
        )?;
        Ok(true)
    }
}

/// A condition on the current entry, checked under the lock before a change.
trait Holds {
    /// Returns whether the condition holds for every entry.
    fn is_always(&self) -> bool {
        false
    }
    fn holds(&self, entry: Option<&dyn Present>) -> bool;
}

impl Holds for If<'_> {
    #[inline]
    fn is_always(&self) -> bool {
        matches!(self, If::Always)
    }

    #[inline]
    fn holds(&self, entry: Option<&dyn Present>) -> bool {
        If::holds(self, entry)
    }
}

/// The condition that the entry still equals its copy.
struct Unchanged<'v>(Copied<'v>);

impl Holds for Unchanged<'_> {
    #[inline]
    fn holds(&self, entry: Option<&dyn Present>) -> bool {
        is_unchanged(entry, self.0)
    }
}

/// Stores an entry if the condition holds. Returns whether the condition held.
#[inline]
fn put_if(
    entries: &Entries<'_>,
    key: &RawKey,
    new: NewEntry<'_>,
    condition: impl Holds,
) -> Result<bool, Failed> {
    if let Some(Value::Stored(value)) = new.value {
        value.wanted(entries.value_type())?;
    }
    let value = new.value.as_ref().map(Value::bytes);
    let still = |present: &raw::Present| {
        condition.is_always() || condition.holds(present.entry().as_ref().map(|entry| entry as _))
    };
    match entries.put_at(key, value, new.deadline, still)? {
        Written::Yes => {
            Entries::tally(entries, Counter::Sets, 1);
            note(entries.cache(), key.bytes, RowChange::Set);
            Ok(true)
        }
        Written::No => Ok(false),
        Written::Gone => Err(Failed::Gone),
    }
}

/// Stores an entry as [`put_if`] does, or removes the current entry if the new deadline has passed.
#[inline]
fn put_or_remove_if(
    entries: &Entries<'_>,
    key: &RawKey,
    new: NewEntry<'_>,
    condition: impl Holds,
) -> Result<bool, Failed> {
    if !entries.is_past(new.deadline) {
        return put_if(entries, key, new, condition);
    }
    let (allowed, removed) = entries.delete_at(key, |entry| {
        condition.holds(entry.map(|entry| entry as &dyn Present))
    });
    noted_removal(entries, key, removed);
    Ok(allowed)
}

/// Removes an entry without reading its value. Returns whether the entry was live.
pub fn delete(entries: &Entries<'_>, key: &RawKey) -> bool {
    let (_, removed) = entries.delete_at(key, |_| true);
    noted_removal(entries, key, removed)
}

/// Removes an entry. Returns the result of `project` for it if it was live. If no live entry exists, voids the key's
/// lease.
pub fn take<R>(
    entries: &Entries<'_>,
    key: &RawKey,
    project: impl Fn(&Entry) -> R,
) -> Result<Option<R>, Failed> {
    loop {
        let remove =
            |copied: Copied<'_>| entries.remove(key, |entry| is_unchanged(Some(entry), copied));
        let taken = judge_copy(entries, key, |entry| Some(project(entry)), remove)?;
        if taken.is_some() || entries.void_lease_if_absent(key) {
            return Ok(taken);
        }
        entries.check_for_interrupts();
    }
}

/// Counts a removal and notifies watchers if `removed` is true. Returns `removed`.
fn noted_removal(entries: &Entries<'_>, key: &RawKey, removed: bool) -> bool {
    if removed {
        Entries::tally(entries, Counter::Deletes, 1);
        note(entries.cache(), key.bytes, RowChange::Gone);
    }
    removed
}

/// Returns the deadline of a jsonb entry, and its value as text, the form in which callers pass and receive it.
#[cold]
fn printed((meta, value): (EntryMeta, &[u8])) -> (EntryMeta, Text) {
    if meta.negative {
        return (meta, Text::new(b""));
    }
    let json = Stored::copied(value, ValueType::Json);
    (meta, convert::result::<Text>(json))
}

/// Converts the text in the buffer to jsonb in place.
#[cold]
fn parse(made: &mut Vec<u8>) -> Result<(), Failed> {
    let json = convert::json(Text::new(made))?;
    made.clear();
    made.extend_from_slice(json.bytes());
    Ok(())
}

/// Returns the jsonb value that an entry must equal; None if the condition is of another kind. The comparison needs a
/// copy of the entry: equal values may differ in their bytes, and the comparison may raise an error, which must not
/// happen under the lock.
fn json_of(entries: &Entries<'_>, condition: &If<'_>) -> Option<Stored> {
    match condition {
        If::Equal(Value::Stored(expected)) if entries.value_type() == ValueType::Json => {
            Some(*expected)
        }
        _ => None,
    }
}

fn if_equal(
    entries: &Entries<'_>,
    key: &RawKey,
    expected: Stored,
    act: impl Fn(Copied<'_>) -> Result<bool, Failed>,
) -> Result<bool, Failed> {
    let judge = |entry: &Entry| entry.has_value(Some(expected)).then_some(());
    Ok(judge_copy(entries, key, judge, act)?.is_some())
}

/// Applies `judge` to a copy of a live entry, outside any lock, and `act` to the entry itself if it still equals the
/// copy; otherwise starts over. Returns the result of `judge`. Returns None if no live entry exists or `judge` returns
/// None.
pub fn judge_copy<R>(
    entries: &Entries<'_>,
    key: &RawKey,
    judge: impl Fn(&Entry) -> Option<R>,
    act: impl Fn(Copied<'_>) -> Result<bool, Failed>,
) -> Result<Option<R>, Failed> {
    loop {
        let judged = with_buffers(|Buffers { found, .. }| {
            let Some(meta) = Entries::get(entries, key, found)? else {
                return Ok(Some(None));
            };
            let value = value(&meta, found);
            let Some(answer) = judge(&entry_of(entries, &meta, value)) else {
                return Ok(Some(None));
            };
            Ok::<_, Failed>(act(Some((meta, value)))?.then_some(Some(answer)))
        })?;
        if let Some(answer) = judged {
            return Ok(answer);
        }
        entries.check_for_interrupts();
    }
}

fn entry_of(entries: &Entries<'_>, meta: &EntryMeta, value: &[u8]) -> Entry {
    Entry {
        value: (!meta.negative).then(|| Stored::copied(value, entries.value_type())),
        deadline: (meta.deadline != NO_DEADLINE).then_some(meta.deadline),
    }
}

/// Calls `act` for each key. Returns the number of keys for which `act` returned true.
fn each_key<'k, E>(
    entries: &Entries<'_>,
    keys: impl Iterator<Item = &'k [u8]> + Clone,
    act: impl FnMut(&'k [u8]) -> Result<bool, E>,
) -> Result<i64, E> {
    each_ahead(entries, keys, |key| key, act)
}

/// Calls `act` for each element, which has one key, and prefetches [`AHEAD`] keys at a time. Returns the number of
/// elements for which `act` returned true.
fn each_ahead<'k, T, E>(
    entries: &Entries<'_>,
    mut items: impl Iterator<Item = T> + Clone,
    key: impl Fn(T) -> &'k [u8],
    mut act: impl FnMut(T) -> Result<bool, E>,
) -> Result<i64, E> {
    let mut hits = 0;
    loop {
        let mut count = 0;
        entries.prefetch(items.clone().take(AHEAD).map(&key));
        for item in items.by_ref().take(AHEAD) {
            hits += i64::from(act(item)?);
            count += 1;
        }
        if count < AHEAD {
            return Ok(hits);
        }
    }
}
