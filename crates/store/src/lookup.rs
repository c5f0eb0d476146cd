//! Looks up entries under the shared lock.
//!
//! `index.rs` finds the slot, and the caller's closure decides whether the entry's version is valid. A hit writes one
//! counter; a lookup that compares in place writes nothing.

use crate::entry::{EntryRef, Header, Key};
use crate::entry_events::Counter;
use crate::layout::PAGE;
use crate::partition::PartitionRef;

/// The result of [`PartitionRef::get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetOutcome {
    /// The value is in the first `value_len` bytes of the buffer.
    Hit(Header),
    /// The entry is valid, but the buffer is shorter than `value_len`; nothing was copied or counted.
    TooSmall(Header),
    /// No entry exists, its deadline has passed, or `valid` returned false.
    Miss,
}

/// The progress of a read that copies a large value piece by piece, and releases the lock between two pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    writing: u64,
    page: u32,
    copied: usize,
    length: usize,
}

impl Reading {
    /// The length of a piece in bytes, a multiple of a page.
    pub const PIECE: usize = 16 * PAGE;

    /// Returns the length of the next piece; 0 after the last piece.
    pub fn next(&self) -> usize {
        Reading::PIECE.min(self.length - self.copied)
    }

    /// Returns the length of the value in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// The outcome of copying a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The piece was copied, and more pieces follow.
    Copied,
    /// The last piece was copied, so the copy is now the whole value of the entry.
    Last(Header),
    /// The key now has a different entry, a different value, or no entry, so the copied bytes are invalid.
    Changed,
}

impl<'r> PartitionRef<'r> {
    /// Begins to read a value in pieces. Returns None if the key has no entry that `valid` accepts, or if the value is
    /// too short to have a whole page. Does not check the deadline, and counts nothing.
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

    /// Copies the next piece of the value, if the entry still exists, `valid` accepts it again, and no writer has
    /// replaced its value since the first piece. `into` has the length that [`Reading::next`] returns. The last piece
    /// counts as a hit.
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

    /// Copies a live value. `now` is the time in microseconds on the caller's clock, or `i64::MIN` if `valid` also
    /// checks the deadline. `valid` is the caller's rule about the version. An entry that `valid` rejects, or whose
    /// deadline is not after `now`, is a miss, but stays in the store.
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

    /// Returns the entry of a key with any deadline and version, so that the caller can compare it in place. Counts
    /// nothing.
    #[inline]
    pub fn peek(&self, key: &Key) -> Option<EntryRef<'r>> {
        self.find(key).map(|(_, entry)| entry)
    }

    /// Returns eviction's measure of the use of a key's entry, from 0 to 7; 0 means that no reader has read the entry
    /// since it was stored or last considered for eviction. Returns None if no entry exists. Counts nothing.
    pub fn use_rank(&self, key: &Key) -> Option<u32> {
        self.find(key)
            .map(|(number, _)| self.slot(number).use_rank())
    }
}
