//! [`Store`]: the operations on the entries of a cache, which functions of SQL and commands of the Redis protocol
//! share.
//!
//! It has two implementations, [`super::memory`] and [`super::table`]. A function and a command with the same meaning
//! use the same condition ([`If`]) or the same operation, so that they decide alike. A memory cache decides about the
//! entry as it is now, and refuses the change if another session has changed the entry meanwhile. A table cache locks
//! the row before it decides.

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
    /// Returns the bytes as they were passed.
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
    /// None: a negative entry.
    pub value: Option<Value<'v>>,
    /// [`pgcache_store::NO_DEADLINE`]: it never expires.
    pub deadline: Timestamp,
}

impl<'v> NewEntry<'v> {
    /// Returns an entry with a value that a client has sent.
    #[inline]
    pub fn spelled(value: &'v [u8], deadline: Timestamp) -> NewEntry<'v> {
        NewEntry {
            value: Some(Value::Spelled(value)),
            deadline,
        }
    }
}

/// The condition under which an entry is stored or removed. A negative entry has no value, so it equals none.
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
    /// Returns whether the condition holds for an entry; None stands for a missing one.
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
    /// Stores the value in the buffer, until this deadline.
    Put(Timestamp),
    /// Gives the entry this deadline.
    Touch(Timestamp),
    Remove,
}

/// An entry under a lock, or a copy of one: no session changes it meanwhile.
pub trait Present {
    /// Returns the deadline and length of the entry.
    fn meta(&self) -> EntryMeta;
    /// Returns whether the entry has this value; a negative entry has none.
    fn has(&self, value: &Value) -> bool;
}

/// A copy of an entry: deadline and length, and the value in the form that clients receive. None stands for a missing
/// entry.
pub type Copied<'v> = Option<(EntryMeta, &'v [u8])>;

/// The entries of a cache. `E` is the error of the caller.
pub trait Store: Sized {
    type Key<'k>;

    /// Returns the key that a client has sent as these bytes.
    fn key<'k>(&self, bytes: &'k [u8]) -> Self::Key<'k>;
    /// Returns the key of a function of SQL, which is in canonical form already.
    fn key_of<'k>(&self, key: &'k Key) -> Self::Key<'k>;
    /// Returns the key in the canonical form of the cache; None if no entry can have it.
    fn spelled<'k>(&self, key: &'k Self::Key<'_>) -> Option<&'k [u8]>;
    /// Returns an error if a value of this length cannot be stored under the key.
    fn check_length(&self, key: &Self::Key<'_>, length: usize) -> Result<(), Failed>;
    /// Adds to a counter of the cache.
    fn tally(&self, counter: Counter, times: u64);

    /// Copies a live value to the start of the buffer, which grows as needed.
    fn get(&self, key: &Self::Key<'_>, buffer: &mut Vec<u8>) -> Result<Option<EntryMeta>, Failed>;
    /// Reads several keys, in their order, as `get` does. Returns for how many of them `each` was true.
    fn get_each<'k, E: From<Failed>>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        buffers: &mut Buffers,
        each: impl FnMut(Result<Option<EntryMeta>, OutOfMemory>, &[u8]) -> Result<bool, E>,
    ) -> Result<i64, E>;
    /// Returns a number that rises when a commit changes the key, for entries that are copies of table rows.
    fn epoch(&self, _key: &Self::Key<'_>) -> u64 {
        0
    }
    /// Returns the deadline and length of a live entry.
    fn look(&self, key: &Self::Key<'_>) -> Result<Option<EntryMeta>, Failed>;
    /// Reads several keys, in their order, as `look` does. Returns for how many of them `each` was true.
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
    /// Returns how much eviction considers an entry used, 0 to 7. Rows of a table are not evicted.
    fn use_rank(&self, _key: &Self::Key<'_>) -> u32 {
        0
    }
    /// Returns how many bytes a live entry takes.
    fn size(&self, key: &Self::Key<'_>) -> Result<Option<u64>, Failed>;

    /// Stores an entry if the condition holds, and returns whether it did.
    fn put(
        &self,
        key: &Self::Key<'_>,
        new: NewEntry<'_>,
        condition: If<'_>,
    ) -> Result<bool, Failed>;
    /// Stores an entry for a command of the Redis protocol: an entry whose deadline has passed may be removed instead.
    fn put_or_remove(
        &self,
        key: &Self::Key<'_>,
        new: NewEntry<'_>,
        condition: If<'_>,
    ) -> Result<bool, Failed> {
        self.put(key, new, condition)
    }
    /// Decides about an entry and changes it, atomically. `decide` gets the present entry and a buffer for a new
    /// value. It is called again if another session changes the entry meanwhile. Afterwards `found` contains the
    /// former value.
    fn change<R, E: From<Failed>>(
        &self,
        key: &Self::Key<'_>,
        buffers: &mut Buffers,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Result<(Change, R), E>,
    ) -> Result<R, E>;
    /// Gives a live entry another deadline if `allows` returns true, and returns whether it did.
    fn touch(
        &self,
        key: &Self::Key<'_>,
        deadline: Timestamp,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed>;
    /// Gives a live entry a deadline that is one ttl from now, and returns whether the entry exists. The cache may
    /// keep the old deadline (`touch_after`).
    fn slide(&self, key: &Self::Key<'_>, deadline: Timestamp) -> Result<bool, Failed> {
        self.touch(key, deadline, |_| true)
    }
    /// Copies a live value to the start of the buffer if `slide` would keep its deadline.
    fn get_if_left(
        &self,
        _key: &Self::Key<'_>,
        _deadline: Timestamp,
        _buffer: &mut Vec<u8>,
    ) -> Result<Option<EntryMeta>, Failed> {
        Ok(None)
    }
    /// Removes a live entry if `allows` returns true, and returns whether it did.
    fn remove(
        &self,
        key: &Self::Key<'_>,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed>;
    /// Removes a live entry if the condition holds, and returns whether it did.
    fn remove_if(&self, key: &Self::Key<'_>, condition: If<'_>) -> Result<bool, Failed>;
    /// Removes an entry and copies it to `found`.
    fn take(&self, key: &Self::Key<'_>, buffers: &mut Buffers)
    -> Result<Option<EntryMeta>, Failed>;
    /// Removes several entries without reading them, and returns how many were live.
    fn delete_each<'k>(&self, keys: impl Iterator<Item = &'k [u8]> + Clone) -> Result<i64, Failed>;

    /// Sorts keys in the order in which they are changed, so that two calls do not deadlock.
    fn in_order(&self, keys: &mut [&[u8]]);
    /// Keeps other sessions from changing the entries under these keys until the transaction ends. Another session may
    /// still add an entry under a key that has none.
    fn hold(&self, keys: &[&[u8]]) -> Result<(), Failed>;
    /// Stores all of the entries or none, and returns whether it did. If a key is passed twice, its last value wins.
    /// With `new_only` it stores them only if none of the keys has an entry.
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

/// Returns an error for bytes that a cache of this type does not accept.
#[inline]
pub fn check_value(value_type: ValueType, value: &[u8]) -> Result<(), Error> {
    match value_type == ValueType::Text && !encoding::is_text(value) {
        true => Err(Error::NotText),
        false => Ok(()),
    }
}

/// Returns whether two keys that clients have sent belong to one entry.
pub fn is_same_key<S: Store>(entries: &S, one: &[u8], other: &[u8]) -> bool {
    let (key, other_key) = (entries.key(one), entries.key(other));
    let spelled = entries.spelled(&key);
    one == other || spelled.is_some() && spelled == entries.spelled(&other_key)
}
