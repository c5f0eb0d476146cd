//! An entry in the arena: its header, and the locations of its key's and value's bytes.
//!
//! Only this file reads and writes the words of `layout::entry_word`. It allocates no memory. The header carries the
//! links of the queues, but this file does not know their order.

use crate::entry_events::{EntryEvent, RemovalCause};
use crate::footprint::{Allocation, Footprint};
use crate::layout::{
    ENTRY_HEADER, EXTENDED_HEADER, GRANULE, NO_PAGE, PAGE, TAIL_HEADER, entry_word, page_word,
};
use crate::region::Region;

/// The length of the longest key in bytes.
pub const MAX_KEY: usize = 2048;
/// The deadline of an entry that never expires.
pub const NO_DEADLINE: i64 = i64::MAX;

/// The name of an entry. `hash` covers (database, relation, key) and must be uniform in all 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Key<'k> {
    /// The hash of the key; its top bits choose the partition.
    pub hash: u64,
    /// The caller's id of the cache; compared in full, like the bytes of the key.
    pub cache: u32,
    /// The key itself, 1 to [`MAX_KEY`] bytes.
    pub bytes: &'k [u8],
}

/// The entry that `set` stores under a key.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'v> {
    /// The caller's version of the cache's present content, never used twice for one cache.
    pub version: u64,
    /// The deadline in microseconds on the caller's clock, or [`NO_DEADLINE`].
    pub deadline: i64,
    /// The caller's tag for the value's type.
    pub kind: u8,
    /// Whether the entry records that the key is absent, as a stored NULL.
    pub negative: bool,
    /// The value, at most `Layout::max_value` bytes.
    pub value: &'v [u8],
}

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The caller's id of the cache.
    pub cache: u32,
    /// The version that the entry was stored with; only the caller compares it.
    pub version: u64,
    /// The deadline in microseconds on the caller's clock, or [`NO_DEADLINE`].
    pub deadline: i64,
    /// The caller's tag for the value's type.
    pub kind: u8,
    /// Whether the entry is a stored NULL.
    pub negative: bool,
    /// The length of the key in bytes.
    pub key_len: u32,
    /// The length of the value in bytes.
    pub value_len: u32,
}

impl Header {
    /// Returns the ledger's event for an entry that takes this many granules.
    pub(crate) fn event(&self, granules: u64, removed: Option<RemovalCause>) -> EntryEvent {
        EntryEvent {
            cache: self.cache,
            version: self.version,
            bytes: granules * GRANULE as u64,
            deadline: self.deadline,
            removed,
        }
    }
}

/// An entry in its partition. It is valid while the caller holds the partition's lock.
#[derive(Clone, Copy)]
pub struct EntryRef<'r> {
    region: &'r Region,
    pub(crate) location: u32,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl<'r> EntryRef<'r> {
    #[inline]
    pub(crate) fn new(region: &'r Region, location: u32) -> EntryRef<'r> {
        EntryRef { region, location }
    }

    #[inline]
    fn at(&self) -> usize {
        self.location as usize * GRANULE
    }

    #[inline]
    fn word(&self, word: usize) -> u64 {
        self.region.load(self.at() + word)
    }

    #[inline]
    fn set_word(&self, word: usize, value: u64) {
        self.region.store(self.at() + word, value);
    }

    /// Returns the entry's header.
    #[inline]
    pub fn header(&self) -> Header {
        let lengths = self.word(entry_word::LENGTHS);
        Header {
            cache: (self.word(entry_word::SLOT_AND_CACHE) >> 32) as u32,
            version: self.word(entry_word::VERSION),
            deadline: self.deadline(),
            kind: (lengths >> entry_word::KIND_SHIFT) as u8,
            negative: lengths >> entry_word::FLAGS_SHIFT & entry_word::NEGATIVE != 0,
            key_len: self.key_len() as u32,
            value_len: lengths as u32,
        }
    }

    /// Returns the bytes of memory that the entry takes, a multiple of a granule.
    pub fn bytes(&self) -> u64 {
        self.allocation().granules() * GRANULE as u64
    }

    pub(crate) fn newer(&self) -> u32 {
        self.word(entry_word::LINKS) as u32
    }

    pub(crate) fn older(&self) -> u32 {
        (self.word(entry_word::LINKS) >> 32) as u32
    }

    pub(crate) fn slot(&self) -> u32 {
        self.word(entry_word::SLOT_AND_CACHE) as u32
    }

    #[inline]
    pub(crate) fn deadline(&self) -> i64 {
        self.word(entry_word::DEADLINE) as i64
    }

    #[inline]
    fn key_len(&self) -> usize {
        (self.word(entry_word::LENGTHS) >> entry_word::KEY_LEN_SHIFT & 0xFFF) as usize
    }

    #[inline]
    fn value_len(&self) -> usize {
        self.word(entry_word::LENGTHS) as u32 as usize
    }

    #[inline]
    fn extended(&self) -> bool {
        self.word(entry_word::LENGTHS) >> entry_word::FLAGS_SHIFT & entry_word::EXTENDED != 0
    }

    pub(crate) fn footprint(&self) -> Footprint {
        Footprint::new(self.key_len(), self.value_len())
    }

    /// Returns the memory that this entry occupies.
    pub(crate) fn allocation(&self) -> Allocation {
        let footprint = self.footprint();
        let head_len =
            (self.word(entry_word::LENGTHS) >> entry_word::HEAD_LEN_SHIFT & 63) as u32 + 1;
        let (first_page, tail) = match self.extended() {
            true => (
                self.word(entry_word::EXTENSION) as u32,
                (self.word(entry_word::EXTENSION) >> 32) as u32,
            ),
            false => (NO_PAGE, 0),
        };
        let tail_len = if tail == 0 {
            0
        } else {
            footprint.tail_granules(head_len)
        };
        Allocation {
            head: self.location,
            head_len,
            tail,
            tail_len,
            first_page,
            pages: footprint.pages,
        }
    }

    #[inline]
    fn key_at(&self) -> usize {
        self.at()
            + if self.extended() {
                EXTENDED_HEADER
            } else {
                ENTRY_HEADER
            }
    }

    #[inline]
    pub(crate) fn matches(&self, key: &Key) -> bool {
        (self.word(entry_word::SLOT_AND_CACHE) >> 32) as u32 == key.cache
            && self.key_len() == key.bytes.len()
            && self.region.bytes_equal(self.key_at(), key.bytes)
    }

    /// Returns whether the key has this prefix. Compares in place, without a copy.
    pub fn key_starts_with(&self, prefix: &[u8]) -> bool {
        self.key_len() >= prefix.len() && self.region.bytes_equal(self.key_at(), prefix)
    }

    /// Copies as much of the key as fits into `into`, and returns the number of copied bytes.
    pub fn copy_key(&self, into: &mut [u8]) -> usize {
        let len = self.key_len().min(into.len());
        self.region.copy_out(self.key_at(), &mut into[..len]);
        len
    }

    /// Copies the value to the start of `into`. Returns false and copies nothing if the value does not fit.
    #[inline]
    pub fn copy_value(&self, into: &mut [u8]) -> bool {
        let Some(into) = into.get_mut(..self.value_len()) else {
            return false;
        };
        self.extents(|at, from, len| match into.get_mut(from..from + len) {
            Some(part) => {
                self.region.copy_out(at, part);
                true
            }
            None => false,
        })
    }

    /// Returns the sequence number of the write that stored this value, and the value's first page. No two writes in a
    /// partition have the same number. Returns None if the value has no whole page.
    pub(crate) fn writing(&self) -> Option<(u64, u32)> {
        let allocation = self.allocation();
        (allocation.pages > 0).then(|| {
            let at = self
                .region
                .page_meta(allocation.first_page, page_word::WRITING);
            (self.region.load(at), allocation.first_page)
        })
    }

    pub(crate) fn set_writing(&self, number: u64) {
        let first_page = self.allocation().first_page;
        let at = self.region.page_meta(first_page, page_word::WRITING);
        self.region.store(at, number);
    }

    /// Copies the bytes of the value from the offset `from` on, where the page `page` starts: whole pages, and at the
    /// end of the value also the rest. Returns the page that follows. Returns None if the chain of pages does not fit
    /// the value's length; the copied bytes are then invalid.
    pub(crate) fn copy_piece(&self, from: usize, page: u32, into: &mut [u8]) -> Option<u32> {
        let (mut page, mut rest) = (page, into);
        let pages = self.allocation().pages as usize;
        for _ in from / PAGE..pages {
            if rest.is_empty() {
                return Some(page);
            }
            let (part, after) = rest.split_at_mut_checked(PAGE)?;
            self.region.copy_out(self.region.page_at(page), part);
            page = self.region.next_page(page);
            rest = after;
        }
        if rest.is_empty() {
            return Some(page);
        }
        let whole = rest.len() == self.value_len() - pages * PAGE;
        let copied = whole
            && self.runs(|at, from, len| match rest.get_mut(from..from + len) {
                Some(part) => {
                    self.region.copy_out(at, part);
                    true
                }
                None => false,
            });
        copied.then_some(page)
    }

    /// Returns whether the entry's value equals `value`. Compares in place, without a copy.
    pub fn value_equals(&self, value: &[u8]) -> bool {
        value.len() == self.value_len()
            && self.extents(|at, from, len| {
                value
                    .get(from..from + len)
                    .is_some_and(|part| self.region.bytes_equal(at, part))
            })
    }

    /// Calls `visit(offset in the region, offset in the value, length)` for each contiguous part of the value, until a
    /// call returns false. Returns whether all calls returned true.
    #[inline]
    fn extents(&self, mut visit: impl FnMut(usize, usize, usize) -> bool) -> bool {
        let key_end = self.key_at() + self.key_len();
        if !self.extended() {
            return visit(key_end, 0, self.value_len());
        }
        let allocation = self.allocation();
        let mut page = allocation.first_page;
        let mut from = 0;
        for _ in 0..allocation.pages {
            if !visit(self.region.page_at(page), from, PAGE) {
                return false;
            }
            from += PAGE;
            page = self.region.next_page(page);
        }
        self.runs(|at, in_runs, len| visit(at, from + in_runs, len))
    }

    /// Visits the parts of an extended entry's value that follow its pages. Offsets in the value are relative to the
    /// end of the pages.
    fn runs(&self, mut visit: impl FnMut(usize, usize, usize) -> bool) -> bool {
        let allocation = self.allocation();
        let footprint = self.footprint();
        let in_head = footprint
            .run_bytes
            .min(footprint.head_value_bytes(allocation.head_len));
        let tail_at = allocation.tail as usize * GRANULE + TAIL_HEADER;
        visit(self.key_at() + self.key_len(), 0, in_head)
            && (allocation.tail == 0 || visit(tail_at, in_head, footprint.run_bytes - in_head))
    }

    /// Writes the whole entry except its queue links and its slot. No index slot refers to the memory yet.
    pub(crate) fn write(&self, allocation: &Allocation, key: &Key, new: &NewEntry) {
        self.set_word(entry_word::LINKS, 0);
        self.set_word(entry_word::SLOT_AND_CACHE, pair(0, key.cache));
        self.set_lengths(allocation, key.bytes.len(), new);
        if allocation.extended() {
            self.set_word(
                entry_word::EXTENSION,
                pair(allocation.first_page, allocation.tail),
            );
        }
        if allocation.tail != 0 {
            self.link_tail(allocation.tail, allocation.tail_len);
        }
        self.region.copy_in(self.key_at(), key.bytes);
        self.write_value(new);
    }

    fn set_lengths(&self, allocation: &Allocation, key_len: usize, new: &NewEntry) {
        let flags = u64::from(new.negative) * entry_word::NEGATIVE
            + u64::from(allocation.extended()) * entry_word::EXTENDED;
        let lengths = new.value.len() as u64
            | (key_len as u64) << entry_word::KEY_LEN_SHIFT
            | u64::from(allocation.head_len - 1) << entry_word::HEAD_LEN_SHIFT
            | u64::from(new.kind) << entry_word::KIND_SHIFT
            | flags << entry_word::FLAGS_SHIFT;
        self.set_word(entry_word::LENGTHS, lengths);
    }

    pub(crate) fn set_version(&self, version: u64) {
        self.set_word(entry_word::VERSION, version);
    }

    fn write_value(&self, new: &NewEntry) {
        self.set_word(entry_word::DEADLINE, new.deadline as u64);
        self.set_version(new.version);
        self.extents(|at, from, len| {
            if let Some(part) = new.value.get(from..from + len) {
                self.region.copy_in(at, part);
            }
            true
        });
    }

    /// Writes another value with the same footprint into the entry's memory.
    pub(crate) fn rewrite(&self, new: &NewEntry) {
        self.set_lengths(&self.allocation(), self.key_len(), new);
        self.write_value(new);
    }

    /// Returns whether a value of this length needs exactly the memory that the entry has.
    pub(crate) fn fits_in_place(&self, value_len: usize) -> bool {
        let (allocation, footprint) =
            (self.allocation(), Footprint::new(self.key_len(), value_len));
        let runs_fit = match (allocation.tail, self.extended() == (footprint.pages > 0)) {
            (0, true) => footprint.one_run_granules() == allocation.head_len,
            (0, false) => false,
            _ => footprint.tail_granules(allocation.head_len) == allocation.tail_len,
        };
        runs_fit && footprint.pages == allocation.pages
    }

    /// Stores the head's location in the tail, so that compaction, which finds a tail in a page, also finds its entry.
    pub(crate) fn link_tail(&self, tail: u32, tail_len: u32) {
        self.region
            .store(tail as usize * GRANULE, pair(self.location, tail_len));
    }

    pub(crate) fn set_tail(&self, tail: u32) {
        self.set_word(
            entry_word::EXTENSION,
            pair(self.word(entry_word::EXTENSION) as u32, tail),
        );
    }

    pub(crate) fn set_links(&self, newer: u32, older: u32) {
        self.set_word(entry_word::LINKS, pair(newer, older));
    }

    pub(crate) fn set_newer(&self, newer: u32) {
        self.set_links(newer, self.older());
    }

    pub(crate) fn set_older(&self, older: u32) {
        self.set_links(self.newer(), older);
    }

    pub(crate) fn set_slot(&self, slot: u32) {
        self.set_word(
            entry_word::SLOT_AND_CACHE,
            pair(slot, (self.word(entry_word::SLOT_AND_CACHE) >> 32) as u32),
        );
    }

    pub(crate) fn set_deadline(&self, deadline: i64) {
        self.set_word(entry_word::DEADLINE, deadline as u64);
    }
}
