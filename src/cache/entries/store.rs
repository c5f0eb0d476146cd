//! Entries by key, wherever they are: what functions of SQL and commands of the Redis protocol do
//! to them.
//!
//! [`Store`] has two implementations: [`super::memory`] and [`super::table`]. A function of SQL and
//! a command that do the same decide by the same condition ([`If`]) or call the same function. A memory
//! cache shows an entry as it is now, and refuses a change if another session has changed the entry
//! meanwhile. A table locks the row before the decision.

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

/// A value to store or to compare: as a client spells it, or as a datum of the cache's type.
#[derive(Clone, Copy)]
pub enum Value<'v> {
    Spelled(&'v [u8]),
    Stored(Stored),
}

impl Value<'_> {
    /// The bytes as they are given.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Spelled(bytes) => bytes,
            Value::Stored(value) => value.bytes(),
        }
    }
}

/// An entry that is to be stored.
#[derive(Clone, Copy)]
pub struct NewEntry<'v> {
    /// None: a negative entry.
    pub value: Option<Value<'v>>,
    /// [`pgcache_store::NO_DEADLINE`]: it never expires.
    pub deadline: Timestamp,
}

impl<'v> NewEntry<'v> {
    /// An entry with a value in a client's spelling.
    #[inline]
    pub fn spelled(value: &'v [u8], deadline: Timestamp) -> NewEntry<'v> {
        NewEntry {
            value: Some(Value::Spelled(value)),
            deadline,
        }
    }
}

/// On which entry a new one is stored. A negative entry has no value: it equals none.
#[derive(Clone, Copy)]
pub enum If<'v> {
    Always,
    Absent,
    Present,
    Equal(Value<'v>),
    NotEqual(Value<'v>),
    /// There is no live entry, or a negative one.
    NoValue,
}

impl If<'_> {
    /// Whether the condition holds for an entry; None: there is none.
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
    /// Stores the value that was made, until this deadline.
    Put(Timestamp),
    /// Gives the entry this deadline.
    Touch(Timestamp),
    Remove,
}

/// An entry under a lock, or a copy of one: no session changes it meanwhile.
pub trait Present {
    /// Deadline and length of the entry.
    fn meta(&self) -> EntryMeta;
    /// Whether it has this value; a negative entry has none.
    fn has(&self, value: &Value) -> bool;
}

/// A copy of an entry: what it says, and its value in a client's spelling.
pub type Copied<'v> = Option<(EntryMeta, &'v [u8])>;

/// The entries of a cache. `E` is the error of the caller.
pub trait Store: Sized {
    type Key<'k>;

    /// The key that these bytes spell.
    fn key<'k>(&self, bytes: &'k [u8]) -> Self::Key<'k>;
    /// The key of a function of SQL, which the cache has spelled.
    fn key_of<'k>(&self, key: &'k Key) -> Self::Key<'k>;
    /// The key as the cache spells it. None: no entry can have it.
    fn spelled<'k>(&self, key: &'k Self::Key<'_>) -> Option<&'k [u8]>;
    /// An error for a value of this length that cannot be stored under the key.
    fn check_length(&self, key: &Self::Key<'_>, length: usize) -> Result<(), Failed>;
    /// Counts something that happened to the cache.
    fn tally(&self, counter: Counter, times: u64);

    /// Copies a live value to the start of the buffer, which grows if need be.
    fn get(&self, key: &Self::Key<'_>, buffer: &mut Vec<u8>) -> Result<Option<EntryMeta>, Failed>;
    /// The same of several keys, in their order; what `each` says of them is counted.
    fn get_each<'k, E: From<Failed>>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        buffers: &mut Buffers,
        each: impl FnMut(Result<Option<EntryMeta>, OutOfMemory>, &[u8]) -> Result<bool, E>,
    ) -> Result<i64, E>;
    /// Rises when a commit changes the key, where entries are copies of a table's rows.
    fn epoch(&self, _key: &Self::Key<'_>) -> u64 {
        0
    }
    /// Deadline and length of a live entry.
    fn look(&self, key: &Self::Key<'_>) -> Result<Option<EntryMeta>, Failed>;
    /// The same of several keys, in their order.
    fn look_each<'k, E: From<Failed>>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        each: impl FnMut(Option<EntryMeta>) -> Result<bool, E>,
    ) -> Result<i64, E>;
    /// Whether there is a live entry of which `holds` is true.
    fn look_if(
        &self,
        key: &Self::Key<'_>,
        holds: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed>;
    /// How much eviction considers an entry used, 0 to 7. Rows of a table are not evicted.
    fn use_rank(&self, _key: &Self::Key<'_>) -> u32 {
        0
    }
    /// How many bytes a live entry takes.
    fn size(&self, key: &Self::Key<'_>) -> Result<Option<u64>, Failed>;

    /// Stores an entry on this condition; whether it did.
    fn put(
        &self,
        key: &Self::Key<'_>,
        new: NewEntry<'_>,
        condition: If<'_>,
    ) -> Result<bool, Failed>;
    /// The same as a command of the Redis protocol: an entry whose deadline is over may be removed
    /// instead.
    fn put_or_remove(
        &self,
        key: &Self::Key<'_>,
        new: NewEntry<'_>,
        condition: If<'_>,
    ) -> Result<bool, Failed> {
        self.put(key, new, condition)
    }
    /// Changes an entry by what it is, in one step. `decide` is given the entry and room for a value.
    /// It is called again if another session changes the entry meanwhile. Afterwards `found` has the
    /// former value.
    fn change<R, E: From<Failed>>(
        &self,
        key: &Self::Key<'_>,
        buffers: &mut Buffers,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Result<(Change, R), E>,
    ) -> Result<R, E>;
    /// Gives a live entry another deadline if `allows` says so; whether it did.
    fn touch(
        &self,
        key: &Self::Key<'_>,
        deadline: Timestamp,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed>;
    /// Gives a live entry a deadline that is a ttl from now on; whether it exists. The cache may leave the deadline as
    /// it is (`touch_after`).
    fn slide(&self, key: &Self::Key<'_>, deadline: Timestamp) -> Result<bool, Failed> {
        self.touch(key, deadline, |_| true)
    }
    /// Copies a live value to the start of the buffer if `slide` would leave its deadline as it is.
    fn get_if_left(
        &self,
        _key: &Self::Key<'_>,
        _deadline: Timestamp,
        _buffer: &mut Vec<u8>,
    ) -> Result<Option<EntryMeta>, Failed> {
        Ok(None)
    }
    /// Removes a live entry if `allows` says so; whether it was removed.
    fn remove(
        &self,
        key: &Self::Key<'_>,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Result<bool, Failed>;
    /// Removes a live entry on this condition; whether it was removed.
    fn remove_if(&self, key: &Self::Key<'_>, condition: If<'_>) -> Result<bool, Failed>;
    /// Removes an entry and copies it to `found`.
    fn take(&self, key: &Self::Key<'_>, buffers: &mut Buffers)
    -> Result<Option<EntryMeta>, Failed>;
    /// Removes several without a look at them; how many were live.
    fn delete_each<'k>(&self, keys: impl Iterator<Item = &'k [u8]> + Clone) -> Result<i64, Failed>;

    /// Sorts keys in the order in which they are changed, so that two calls never wait for each
    /// other in a circle.
    fn in_order(&self, keys: &mut [&[u8]]);
    /// Keeps other sessions from changing the entries under these keys until the transaction ends. An
    /// entry may still be added under a key that has none.
    fn hold(&self, keys: &[&[u8]]) -> Result<(), Failed>;
    /// Stores several, of a key given twice the last; only if none of them is there with `new_only`.
    /// Whether it did: all or none.
    fn set_all<'k>(
        &self,
        pairs: impl Iterator<Item = (&'k [u8], &'k [u8])> + Clone,
        deadline: Timestamp,
        new_only: bool,
    ) -> Result<bool, Failed>;
}

/// Whether an entry is still what was copied from it.
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

/// An error for bytes that a cache of this type does not take.
#[inline]
pub fn check_value(value_type: ValueType, value: &[u8]) -> Result<(), Error> {
    match value_type == ValueType::Text && !encoding::is_text(value) {
        true => Err(Error::NotText),
        false => Ok(()),
    }
}

/// Whether two keys, as clients spell them, are of one entry.
pub fn is_same_key<S: Store>(entries: &S, one: &[u8], other: &[u8]) -> bool {
    let (key, other_key) = (entries.key(one), entries.key(other));
    let spelled = entries.spelled(&key);
    one == other || spelled.is_some() && spelled == entries.spelled(&other_key)
}
