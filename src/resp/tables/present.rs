//! An entry of a table as a client is shown it: bytes, and what is said of them.

use pgcache_store::NO_DEADLINE;

use crate::cache::entries::Entry;
use crate::cache::memory::raw::{self, OutOfMemory, Seen};
use crate::cache::model::deadline::Deadline;
use crate::pg::session::clock::Timestamp;
use crate::pg::value::convert;
use crate::pg::value::datum::{Text, ValueType};
use crate::pg::value::stored::Stored;
use crate::resp::commands::store::Present;

/// An entry whose row is locked, or was read.
pub struct Held<'e>(pub &'e Entry);

impl Present for Held<'_> {
    fn seen(&self) -> Seen {
        let printed = self.0.value.map(printed);
        seen(self.0, printed.as_ref())
    }

    fn has(&self, value: &[u8]) -> bool {
        let printed = self.0.value.map(printed);
        printed.is_some_and(|printed| printed.bytes() == value)
    }
}

/// The value as a client is given it: JSON as text.
pub fn printed(value: Stored) -> Stored {
    match value.value_type() {
        ValueType::Json => Stored::of(convert::result::<Text>(value)),
        _ => value,
    }
}

pub fn seen(entry: &Entry, printed: Option<&Stored>) -> Seen {
    Seen {
        deadline: entry.deadline.unwrap_or(NO_DEADLINE),
        negative: printed.is_none(),
        length: printed.map_or(0, |value| value.bytes().len()),
    }
}

pub fn copy_out(entry: &Entry, buffer: &mut Vec<u8>) -> Result<Seen, OutOfMemory> {
    let printed = entry.value.map(printed);
    let bytes = printed.as_ref().map_or(&[][..], |value| value.bytes());
    raw::grow(buffer, bytes.len())?;
    if let Some(place) = buffer.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
    Ok(seen(entry, printed.as_ref()))
}

pub fn deadline_of(moment: Timestamp) -> Deadline {
    (moment != NO_DEADLINE).then_some(moment)
}
