//! Look-ups under the shared lock.
//!
//! What it is not: it finds no slot (`index.rs`) and judges no version; that is the caller's
//! closure.
//! The rule it guards: a hit costs a counter, a look in place costs nothing.

use crate::entry::{EntryRef, Header, Key};
use crate::layout::PAGE;
use crate::ledger::Counter;
use crate::partition::PartitionRef;

/// The answer of [`PartitionRef::get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetOutcome {
    /// The value is in the first `value_len` bytes of the buffer.
    Hit(Header),
    /// Live, but the buffer is shorter than `value_len`; nothing was copied or counted.
    TooSmall(Header),
    /// There is no entry, its time has come, or `valid` said no.
    Miss,
}

/// How far a value of several pages was copied. Under a lock that is given back between two pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    writing: u64,
    page: u32,
    copied: usize,
    length: usize,
}

impl Reading {
    /// Bytes of a piece that is to be copied: whole pages of the store.
    pub const PIECE: usize = 16 * PAGE;

    /// The length of the next piece: 0 behind the last.
    pub fn next(&self) -> usize {
        Reading::PIECE.min(self.length - self.copied)
    }

    /// Bytes of the value.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// It was copied, and others follow.
    Copied,
    /// It was the last: the value is what the entry has under the present lock, all of it.
    Last(Header),
    /// There is another entry, another value, or none: what was copied is of no use.
    Changed,
}

impl<'r> PartitionRef<'r> {
    /// Begins to read a value in pieces, as [`PartitionRef::get`] judges the entry, and counts nothing. None:
    /// there is no such entry, or its value takes no page of its own.
    pub fn begin(&self, key: &Key, valid: impl FnOnce(&Header) -> bool) -> Option<Reading> {
        let (_, entry) = self.find(key)?;
        let (writing, page) = entry.writing()?;
        let header = entry.header();
        valid(&header).then_some(Reading {
            writing,
            page,
            copied: 0,
            length: header.value_len as usize,
        })
    }

    /// Copies the next piece, if the entry is there still, `valid` says so of it again, and nobody has written it
    /// since the first one; `into` is as long as [`Reading::next`] says. The last one counts as a hit.
    pub fn read_on(
        &self,
        key: &Key,
        valid: impl FnOnce(&Header) -> bool,
        reading: &mut Reading,
        into: &mut [u8],
    ) -> Piece {
        let found = self.find(key).filter(|(_, entry)| {
            let writing = entry.writing().map(|(writing, _)| writing);
            writing == Some(reading.writing) && valid(&entry.header())
        });
        let Some((slot, entry)) = found else {
            return Piece::Changed;
        };
        let Some(page) = entry.copy_piece(reading.copied, reading.page, into) else {
            return Piece::Changed;
        };
        reading.page = page;
        reading.copied += into.len();
        if reading.copied < reading.length {
            return Piece::Copied;
        }
        self.count_hit(slot);
        self.count(Counter::Hits);
        Piece::Last(entry.header())
    }

    /// Copies a live value out. `now`: microseconds on the caller's clock; `i64::MIN` where `valid`
    /// judges the deadline, too. `valid` is the caller's rule about the version; an entry that
    /// fails it, or whose deadline is not after `now`, is a miss and stays where it is.
    #[inline]
    pub fn get(
        &self,
        key: &Key,
        now: i64,
        valid: impl FnOnce(&Header) -> bool,
        buffer: &mut [u8],
    ) -> GetOutcome {
        let found = self.find(key).filter(|(_, entry)| now < entry.deadline());
        let Some((slot, entry)) = found else {
            self.count(Counter::Misses);
            return GetOutcome::Miss;
        };
        let header = entry.header();
        if !valid(&header) {
            self.count(Counter::Misses);
            return GetOutcome::Miss;
        }
        if !entry.copy_value(buffer) {
            return GetOutcome::TooSmall(header);
        }
        self.count_hit(slot);
        self.count(Counter::Hits);
        GetOutcome::Hit(header)
    }

    /// The entry of a key whatever its deadline and version, for comparing in place. Counts
    /// nothing.
    #[inline]
    pub fn peek(&self, key: &Key) -> Option<EntryRef<'r>> {
        self.find(key).map(|(_, entry)| entry)
    }

    /// How much the entry of a key is used, as eviction judges it: 0 for one that was not read
    /// since it came or was last passed over, at most 7. None: there is no entry. Counts nothing.
    pub fn use_rank(&self, key: &Key) -> Option<u32> {
        self.find(key)
            .map(|(number, _)| self.slot(number).use_rank())
    }
}
