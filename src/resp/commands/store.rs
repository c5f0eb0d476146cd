//! What a command asks of entries, wherever they are: in the tier, or in a table.
//!
//! One code of the commands serves both, each compiled for itself. What differs by nature stands
//! beside it: a memory cache gives an entry as it is now and refuses a change where that came to be
//! another one meanwhile, a table locks the row before it is judged.

use std::cell::Cell;

use pgcache_resp::Args;

use super::buffers::Buffers;
use super::refusal::{Done, Refusal};
use crate::cache::memory::raw::{New, OutOfMemory, Seen};
use crate::pg::encoding;
use crate::pg::session::clock::Timestamp;
use crate::pg::shmem::slot::Figure;
use crate::pg::value::datum::ValueType;
use crate::resp::target::{Rights, Target};

/// What a change by the entry that is there decides.
pub enum Change {
    Keep,
    /// What was made is stored, until this deadline.
    Put(Timestamp),
    Remove,
}

/// An error for bytes that a cache of this type does not take.
#[inline]
pub fn check_value<'a>(value_type: ValueType, value: &[u8]) -> Done<'a> {
    match value_type == ValueType::Text && !encoding::is_text(value) {
        true => Err(Refusal::NotText),
        false => Ok(()),
    }
}

/// An entry that nobody can change while it is looked at.
pub trait Present {
    fn seen(&self) -> Seen;
    /// Whether it has this value; a negative entry has none.
    fn has(&self, value: &[u8]) -> bool;
}

/// Whether an entry is still what was copied from it.
pub fn is_unchanged(entry: Option<&dyn Present>, copied: Option<(Seen, &[u8])>) -> bool {
    match (entry, copied) {
        (None, None) => true,
        (Some(entry), Some((seen, value))) => {
            entry.seen() == seen && (seen.negative || entry.has(value))
        }
        _ => false,
    }
}

/// A copy of an entry: what it says, and its value.
pub type Copied<'v> = Option<(Seen, &'v [u8])>;

/// The entries of a cache.
pub trait Store: Sized {
    type Key<'k>;
    /// Keys of one piece of a command; what is left is done when others have had their turn.
    const PIECE: usize;
    /// Whether one with this deadline is removed instead of stored.
    fn removes(&self, deadline: Timestamp) -> bool;

    /// An error where the role has these rights and they are of no use all the same.
    fn admits<'a>(target: &Target, rights: Rights) -> Done<'a>;
    /// Makes the entries ready to be changed by a command that has these rights.
    fn open<'a>(&self, rights: Rights) -> Done<'a>;
    /// Whether an entry that is not here may be elsewhere.
    fn is_partial(target: &Target) -> bool;
    fn key<'k>(&self, bytes: &'k [u8]) -> Self::Key<'k>;
    /// The key as the cache spells it. None: no entry can have it.
    fn spelled<'k>(&self, key: &'k Self::Key<'_>) -> Option<&'k [u8]>;
    /// An error for a value of this length that cannot be stored under the key.
    fn check_length<'a>(&self, key: &Self::Key<'_>, length: usize) -> Done<'a>;
    /// Counts something that happened to the cache.
    fn tally(&self, figure: Figure, times: u64);

    /// Copies a live value to the start of the buffer, which grows if need be.
    fn get<'a>(&self, key: &Self::Key<'_>, buffer: &mut Vec<u8>) -> Done<'a, Option<Seen>>;
    /// The same of several keys, in their order; what `each` says of them is counted.
    fn get_each<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]> + Clone,
        buffers: &mut Buffers,
        each: impl FnMut(Result<Option<Seen>, OutOfMemory>, &[u8]) -> Done<'a, bool>,
    ) -> Done<'a, i64>;
    /// Rises when a commit changes the key, where entries are copies of a table's rows.
    fn epoch(&self, _key: &Self::Key<'_>) -> u64 {
        0
    }
    /// What a live entry says.
    fn look<'a>(&self, key: &Self::Key<'_>) -> Done<'a, Option<Seen>>;
    /// The same of several keys, in their order.
    fn look_each<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]> + Clone,
        each: impl FnMut(Option<Seen>) -> Done<'a, bool>,
    ) -> Done<'a, i64>;
    /// Whether there is a live entry of which `holds` is true.
    fn look_if<'a>(
        &self,
        key: &Self::Key<'_>,
        holds: impl Fn(&dyn Present) -> bool,
    ) -> Done<'a, bool>;
    /// How much eviction considers an entry used, 0 to 7. Rows of a table are not evicted.
    fn use_rank(&self, _key: &Self::Key<'_>) -> u32 {
        0
    }
    /// How many bytes a live entry takes.
    fn size<'a>(&self, key: &Self::Key<'_>) -> Done<'a, Option<u64>>;

    /// Stores an entry.
    fn set<'a>(&self, key: &Self::Key<'_>, new: New<'_>) -> Done<'a>;
    /// Stores an entry if `still` says so of the one that is there; whether it did.
    fn put<'a>(
        &self,
        key: &Self::Key<'_>,
        new: New<'_>,
        still: impl Fn(Option<&dyn Present>) -> bool,
    ) -> Done<'a, bool>;
    /// Changes an entry by what it is, in one step: `decide` is given it, and room for a value, and
    /// is asked again if somebody changes the entry meanwhile. What was there is in `found` then.
    fn change<'a, R>(
        &self,
        key: &Self::Key<'_>,
        buffers: &mut Buffers,
        decide: impl Fn(Copied<'_>, &mut Vec<u8>) -> Done<'a, (Change, R)>,
    ) -> Done<'a, R>;
    /// Gives a live entry another deadline if `allows` says so of it; whether it did.
    fn touch<'a>(
        &self,
        key: &Self::Key<'_>,
        deadline: Timestamp,
        allows: impl Fn(&dyn Present) -> bool,
    ) -> Done<'a, bool>;
    /// Removes a live entry if `still` says so of it; whether it was there and it did.
    fn remove<'a>(
        &self,
        key: &Self::Key<'_>,
        still: impl Fn(&dyn Present) -> bool,
    ) -> Done<'a, bool>;
    /// Removes an entry and copies it to `found`.
    fn take<'a>(&self, key: &Self::Key<'_>, buffers: &mut Buffers) -> Done<'a, Option<Seen>>;
    /// Removes several without a look at them; how many were live.
    fn delete_each<'a>(&self, keys: impl Iterator<Item = &'a [u8]> + Clone) -> Done<'a, i64>;

    /// The keys in the order in which they are changed, so that two commands never wait for each
    /// other in a circle.
    fn in_order(&self, keys: &mut [&[u8]]);
    /// Keeps others from changing the entries under these keys until the command has taken effect.
    /// What is not there may still come.
    fn hold<'a>(&self, keys: &[&[u8]]) -> Done<'a>;
    /// Stores several, of a key given twice the last; only if none of them is there with `new_only`.
    /// Whether it did: all or none.
    fn set_all<'a>(&self, pairs: Args<'a>, deadline: Timestamp, new_only: bool) -> Done<'a, bool>;
}

/// Whether two keys, as clients spell them, are of one entry.
pub fn is_same_key<S: Store>(entries: &S, one: &[u8], other: &[u8]) -> bool {
    let (key, other_key) = (entries.key(one), entries.key(other));
    let spelled = entries.spelled(&key);
    one == other || spelled.is_some() && spelled == entries.spelled(&other_key)
}

/// Stores an entry if `still` says so of what is there; one whose deadline is over may be removed
/// instead. Whether it did.
pub fn put_or_remove<'a, S: Store>(
    entries: &S,
    key: &S::Key<'_>,
    new: New<'_>,
    still: impl Fn(Option<&dyn Present>) -> bool,
) -> Done<'a, bool> {
    if !entries.removes(new.deadline) {
        return entries.put(key, new, still);
    }
    let allowed = Cell::new(still(None));
    entries.remove(key, |entry| {
        allowed.set(still(Some(entry)));
        allowed.get()
    })?;
    Ok(allowed.get())
}

/// The same whatever is there.
#[inline]
pub fn set_or_remove<'a, S: Store>(entries: &S, key: &S::Key<'_>, new: New<'_>) -> Done<'a, bool> {
    match entries.removes(new.deadline) {
        true => put_or_remove(entries, key, new, |_| true),
        false => entries.set(key, new).map(|()| true),
    }
}
