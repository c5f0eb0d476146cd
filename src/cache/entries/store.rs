//! [`Store`]: the operations on the entries of a cache that SQL functions and Redis commands share.
//!
//! The trait has two implementations, [`super::memory`] and [`super::table`]. A function and a command with the same
//! meaning use the same condition ([`If`]) or the same operation, so that they decide alike. A memory cache decides
//! under the lock of the key's partition, or decides about a copy of the entry and changes the entry only if it still
//! equals the copy. A table cache locks the row before it decides.

use super::buffers::Buffers;
use crate::cache::model::key::Key;
use crate::error::Error;
use crate::pg::encoding;
use crate::pg::session::clock::Timestamp;
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::slot::Counter;
use crate::pg::value::datum::ValueType;
use crate::pg::value::stored::Stored;

pub use super::failed::Failed;
pub use crate::cache::memory::raw::{EntryMeta, OutOfMemory};

/// A value to store or to compare: the bytes that a client has sent, or a datum of the cache's type.
#[derive(Clone, Copy)]
pub enum Value<'v> {
    Spelled(&'v [u8]),
    Stored(Stored),
}

impl Value<'_> {
    /// Returns the bytes of the value, unconverted.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Spelled(bytes) => bytes,
            Value::Stored(value) => value.bytes(),
        }
    }
}

/// An entry to store.
#[derive(Clone, Copy)]
pub struct NewEntry<'v> {
    /// The value; None for a negative entry.
    pub value: Option<Value<'v>>,
    /// The deadline; [`pgcache_store::NO_DEADLINE`] if the entry never expires.
    pub deadline: Timestamp,
}

impl<'v> NewEntry<'v> {
    /// Builds an entry with a value that a client has sent.
    #[inline]
    pub fn spelled(value: &'v [u8], deadline: Timestamp) -> NewEntry<'v> {
        NewEntry {
            value: Some(Value::Spelled(value)),
            deadline,
        }
    }
}

/// The condition for storing or removing an entry. A negative entry has no value, so it equals no value.
#[derive(Clone, Copy)]
pub enum If<'v> {
    Always,
    Absent,
    Present,
    Equal(Value<'v>),
    NotEqual(Value<'v>),
    /// No live entry exists, or it is negative.
    NoValue,
}

impl If<'_> {
    /// Returns whether the condition holds for an entry. `entry` is None if the entry is missing.
    #[inline]
    pub fn holds(&self, entry: Option<&dyn Present>) -> bool {
        match self {
            If::Always => true,
            If::Absent => entry.is_none(),
            If::Present => entry.is_some(),
            If::Equal(value) => entry.is_some_and(|entry| entry.has(value)),
            If::NotEqual(value) => !entry.is_some_and(|entry| entry.has(value)),
            If::NoValue => entry.is_none_or(|entry| entry.meta().negative),
        }
    }
}

/// The decision about an entry.
pub enum Change {
    Keep,
    /// Stores the value that the buffer contains, with this deadline.
    Put(Timestamp),
    /// Gives the entry this deadline.
    Touch(Timestamp),
    Remove,
}

/// An entry that is locked, or a copy of an entry. No session changes it while the value exists.
pub trait Present {
    /// Returns the deadline and length of the entry.
    fn meta(&self) -> EntryMeta;
    /// Returns whether the entry has this value. A negative entry has no value.
    fn has(&self, value: &Value) -> bool;
}

/// A copy of an entry: its deadline and length, and its value in the form that clients receive. None means that the
/// entry is missing.
pub type Copied<'v> = Option<(EntryMeta, &'v [u8])>;

/// The entries of a cache. `E` is the error of the caller.
pub trait Store: Sized {
    type Key<'k>;

    /// Returns the key from the bytes that a client has sent.
    fn key<'k>(&self, bytes: &'k [u8]) -> Self::Key<'k>;
    /// Returns the key of an SQL function, which is already in canonical form.
    fn key_of<'k>(&self, key: &'k Key) -> Self::Key<'k>;
    /// Returns the bytes of the key in the canonical form of the cache. Returns None if no entry can have the key.
    fn spelled<'k>(&self, key: &'k Self::Key<'_>) -> Option<&'k [u8]>;
    /// Returns an error if a value of this length cannot be stored under the key.
    fn check_length(&self, key: &Self::Key<'_>, length: usize) -> Result<(), Failed>;
    /// Adds to a counter of the cache.
    fn tally(&self, counter: Counter, times: u64);

    /// Copies the value of a live entry to the start of the buffer, which grows as needed. Returns None if no live
    /// entry exists.
    fn get(&self, key: &Self::Key<'_>, buffer: &mut Vec<u8>) -> Result<Option<EntryMeta>, Failed>;
    /// Reads several keys as `get` does, in their order, and passes each result and value to `each`. Returns the number
    /// of keys for which `each` returned true.
    fn get_each<'k, E: From<Failed>>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        buffers: &mut Buffers,
        each: impl FnMut(Result<Option<EntryMeta>, OutOfMemory>, &[u8]) -> Result<bool, E>,
    ) -> Result<i64, E>;
    /// Returns a number that rises when a commit changes the key. The number is 0 except for entries that are copies of
    /// table rows.
    fn epoch(&self, _key: &Self::Key<'_>) -> u64 {
        0
    }
    /// Returns the deadline and length of a live entry; None if no live entry exists.
    fn look(&self, key: &Self::Key<'_>) -> Result<Option<EntryMeta>, Failed>;
    /// Reads several keys as `look` does, in their order, and passes each result to `each`. Returns the number of keys
    /// for which `each` returned true.
    fn look_each<'k, E: From<Failed>>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        each: impl FnMut(Option<EntryMeta>) -> Result<bool, E>,
    ) -> Result<i64, E>;
    /// Returns whether a live entry exists for which `holds` is true.
    fn look_if(
        &self,
        key: &Self::Key<'_>,
        holds: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed>;
    /// Returns eviction's measure of an entry's use, from 0 to 7. It is 0 for rows of a table, which are not evicted.
    fn use_rank(&self, _key: &Self::Key<'_>) -> u32 {
        0
    }
    /// Returns the number of bytes that a live entry takes.
    fn size(&self, key: &Self::Key<'_>) -> Result<Option<u64>, Failed>;

    /// Stores an entry if the condition holds. Returns whether the entry was stored.
    fn put(
        &self,
        key: &Self::Key<'_>,
        new: NewEntry<'_>,
        condition: If<'_>,
    ) -> Result<bool, Failed>;
    /// Stores an entry for a Redis command. If the new deadline has already passed, the implementation may remove the
    /// current entry instead.
    fn put_or_remove(
        &self,
        key: &Self::Key<'_>,
        new: NewEntry<'_>,
        condition: If<'_>,
    ) -> Result<bool, Failed> {
        self.put(key, new, condition)
    }
    /// Lets `decide` choose a change of an entry, and applies the change atomically. `decide` gets the current entry
    /// and a buffer for a new value. If another session has changed the entry after this call of `decide`, calls
    /// `decide` again. Returns the result of the last call; `found` then contains the previous value.
    fn change<R, E: From<Failed>>(
        &self,
        key: &Self::Key<'_>,
        buffers: &mut Buffers,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Result<(Change, R), E>,
    ) -> Result<R, E>;
    /// Gives a live entry another deadline if `allows` returns true. Returns whether the deadline was set.
    fn touch(
        &self,
        key: &Self::Key<'_>,
        deadline: Timestamp,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed>;
    /// Gives a live entry a deadline that is one ttl from now. Returns whether a live entry exists. The cache may keep
    /// the old deadline (`touch_after`).
    fn slide(&self, key: &Self::Key<'_>, deadline: Timestamp) -> Result<bool, Failed> {
        self.touch(key, deadline, |_| true)
    }
    /// Copies the value of a live entry to the start of the buffer if `slide` would keep the entry's deadline;
    /// otherwise returns None.
    fn get_if_left(
        &self,
        _key: &Self::Key<'_>,
        _deadline: Timestamp,
        _buffer: &mut Vec<u8>,
    ) -> Result<Option<EntryMeta>, Failed> {
        Ok(None)
    }
    /// Removes a live entry if `allows` returns true. Returns whether the entry was removed.
    fn remove(
        &self,
        key: &Self::Key<'_>,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed>;
    /// Removes a live entry if the condition holds. Returns whether the entry was removed.
    fn remove_if(&self, key: &Self::Key<'_>, condition: If<'_>) -> Result<bool, Failed>;
    /// Removes an entry and copies it to `found`. Returns None if the entry was not live.
    fn take(&self, key: &Self::Key<'_>, buffers: &mut Buffers)
    -> Result<Option<EntryMeta>, Failed>;
    /// Removes several entries without reading their values. Returns how many of them were live.
    fn delete_each<'k>(&self, keys: impl Iterator<Item = &'k [u8]> + Clone) -> Result<i64, Failed>;

    /// Sorts keys into the order in which a table changes them, so that two calls do not deadlock. Does nothing for a
    /// memory cache.
    fn in_order(&self, keys: &mut [&[u8]]);
    /// Keeps other sessions from changing the rows of these keys until the transaction ends. Another session may still
    /// add a row for a key without a row. Does nothing for a memory cache.
    fn hold(&self, keys: &[&[u8]]) -> Result<(), Failed>;
    /// Stores all of the entries or none, and returns whether they were stored. If a key is passed twice, its last
    /// value wins. With `new_only`, a table stores them only if no key has an entry; a memory cache ignores
    /// `new_only`, which the caller has checked.
    fn set_all<'k>(
        &self,
        pairs: impl Iterator<Item = (&'k [u8], &'k [u8])> + Clone,
        deadline: Timestamp,
        new_only: bool,
    ) -> Result<bool, Failed>;
}

/// Returns whether an entry still equals its copy.
pub fn is_unchanged(entry: Option<&dyn Present>, copied: Copied<'_>) -> bool {
    match (entry, copied) {
        _ if fault::on(Fault::DecisionNotJudged) => true,
        (None, None) => true,
        (Some(entry), Some((meta, value))) => {
            entry.meta() == meta && (meta.negative || entry.has(&Value::Spelled(value)))
        }
        _ => false,
    }
}

/// Raises an error for bytes that a cache of this type does not accept.
#[inline]
pub fn check_value(value_type: ValueType, value: &[u8]) -> Result<(), Error> {
    match value_type == ValueType::Text && !encoding::is_text(value) {
        true => Err(Error::NotText),
        false => Ok(()),
    }
}

/// Returns whether two keys that clients have sent identify the same entry.
pub fn is_same_key<S: Store>(entries: &S, one: &[u8], other: &[u8]) -> bool {
    let (key, other_key) = (entries.key(one), entries.key(other));
    let spelled = entries.spelled(&key);
    one == other || spelled.is_some() && spelled == entries.spelled(&other_key)
}
