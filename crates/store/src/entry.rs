//! An entry in the arena: its header, and where the bytes of its value lie.
//!
//! What it is not: it allocates nothing and knows no queue order; the header only carries the links.
//! The rule it guards: a header is 40 bytes, so that a 16-byte key and a 512-byte value take nine
//! granules; and an entry wastes at most 63 bytes a run.
//!
//! ```text
//! word 0  newer entry (32) | older entry (32)            links of the eviction queue, as locations
//! word 1  slot in the partition's index (32) | cache (32)
//! word 2  value length (32) | key length (12) | head run in granules - 1 (6) | kind (8) | flags (6)
//! word 3  deadline   word 4  version
//! word 5  first value page (32) | tail run (32)           only with the flag EXTENDED
//! then the key, then the value's bytes that lie in this run
//! tail run: owner's location (32) | granules (32), then bytes
//! ```
//! A value lies in whole pages first, then in the head run, then in the tail run.

use crate::arena::NO_PAGE;
use crate::layout::{GRANULE, PAGE, PAGE_GRANULES};
use crate::region::Region;

pub const MAX_KEY: usize = 2048;
/// The deadline of an entry that never expires.
pub const NO_DEADLINE: i64 = i64::MAX;
const HEADER: usize = 40;
const EXTENDED_HEADER: usize = 48;
const TAIL_HEADER: usize = 8;
const NEGATIVE: u64 = 1;
const EXTENDED: u64 = 2;

/// Names an entry. `hash` covers (database, relation, key) and must be uniform in all 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Key<'k> {
    pub hash: u64,
    /// The caller's number for the cache; compared in full, as the bytes are.
    pub cache: u32,
    /// 1 to [`MAX_KEY`] bytes.
    pub bytes: &'k [u8],
}

/// What `set` stores under a key.
#[derive(Clone, Copy, Debug)]
pub struct Record<'v> {
    /// Generation and epoch of the cache in one number, never used twice for one cache.
    pub version: u64,
    /// Microseconds on the caller's clock, or [`NO_DEADLINE`].
    pub deadline: i64,
    /// The caller's tag for the value's type.
    pub kind: u8,
    /// Known to be absent: a stored NULL.
    pub negative: bool,
    pub value: &'v [u8],
}

/// What an entry says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub cache: u32,
    pub version: u64,
    pub deadline: i64,
    pub kind: u8,
    pub negative: bool,
    pub key_len: u32,
    pub value_len: u32,
}

/// How an entry is cut: derived from lengths, so that it need not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub key_len: usize,
    /// Whole pages of the value.
    pub pages: u32,
    /// Bytes of the value that lie in runs.
    pub rest: usize,
}

impl Shape {
    #[inline]
    pub fn new(key_len: usize, value_len: usize) -> Shape {
        let whole = HEADER + key_len + value_len <= PAGE;
        let pages = if whole { 0 } else { value_len / PAGE };
        Shape {
            key_len,
            pages: pages as u32,
            rest: value_len - pages * PAGE,
        }
    }

    /// Granules of one run that holds all the rest; above 64 there must be a tail.
    pub fn single(&self) -> u32 {
        let header = if self.pages > 0 {
            EXTENDED_HEADER
        } else {
            HEADER
        };
        (header + self.key_len + self.rest).div_ceil(GRANULE) as u32
    }

    /// The least head run when there is a tail.
    pub fn least_head(&self) -> u32 {
        (EXTENDED_HEADER + self.key_len).div_ceil(GRANULE) as u32
    }

    /// Granules of the tail beside a head of this size; 0 when the head holds all.
    pub fn tail(&self, head: u32) -> u32 {
        match self.rest.saturating_sub(self.head_room(head)) {
            0 => 0,
            over => (over + TAIL_HEADER).div_ceil(GRANULE) as u32,
        }
    }

    /// Bytes of the value that fit in an extended head.
    fn head_room(&self, head: u32) -> usize {
        (head as usize * GRANULE).saturating_sub(EXTENDED_HEADER + self.key_len)
    }
}

/// The memory of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub head: u32,
    pub head_len: u32,
    /// 0: no tail.
    pub tail: u32,
    pub tail_len: u32,
    pub first_page: u32,
    pub pages: u32,
}

impl Place {
    pub fn granules(&self) -> u64 {
        u64::from(self.head_len + self.tail_len) + u64::from(self.pages) * u64::from(PAGE_GRANULES)
    }

    #[inline]
    fn extended(&self) -> bool {
        self.tail != 0 || self.pages > 0
    }
}

/// An entry in its partition, for as long as the partition's lock is held.
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
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.region.load(self.at() + index * 8)
    }

    #[inline]
    fn set_word(&self, index: usize, value: u64) {
        self.region.store(self.at() + index * 8, value);
    }

    #[inline]
    pub fn header(&self) -> Header {
        let lengths = self.word(2);
        Header {
            cache: (self.word(1) >> 32) as u32,
            version: self.word(4),
            deadline: self.deadline(),
            kind: (lengths >> 50) as u8,
            negative: lengths >> 58 & NEGATIVE != 0,
            key_len: self.key_len() as u32,
            value_len: lengths as u32,
        }
    }

    pub(crate) fn newer(&self) -> u32 {
        self.word(0) as u32
    }

    pub(crate) fn older(&self) -> u32 {
        (self.word(0) >> 32) as u32
    }

    pub(crate) fn slot(&self) -> u32 {
        self.word(1) as u32
    }

    #[inline]
    pub(crate) fn deadline(&self) -> i64 {
        self.word(3) as i64
    }

    #[inline]
    fn key_len(&self) -> usize {
        (self.word(2) >> 32 & 0xFFF) as usize
    }

    #[inline]
    fn value_len(&self) -> usize {
        self.word(2) as u32 as usize
    }

    #[inline]
    fn extended(&self) -> bool {
        self.word(2) >> 58 & EXTENDED != 0
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape::new(self.key_len(), self.value_len())
    }

    /// The memory this entry occupies.
    pub(crate) fn place(&self) -> Place {
        let shape = self.shape();
        let head_len = (self.word(2) >> 44 & 63) as u32 + 1;
        let (first_page, tail) = match self.extended() {
            true => (self.word(5) as u32, (self.word(5) >> 32) as u32),
            false => (NO_PAGE, 0),
        };
        let tail_len = if tail == 0 { 0 } else { shape.tail(head_len) };
        Place {
            head: self.location,
            head_len,
            tail,
            tail_len,
            first_page,
            pages: shape.pages,
        }
    }

    #[inline]
    fn key_at(&self) -> usize {
        self.at()
            + if self.extended() {
                EXTENDED_HEADER
            } else {
                HEADER
            }
    }

    #[inline]
    pub(crate) fn is(&self, key: &Key) -> bool {
        (self.word(1) >> 32) as u32 == key.cache
            && self.key_len() == key.bytes.len()
            && self.region.bytes_equal(self.key_at(), key.bytes)
    }

    pub fn key_starts_with(&self, prefix: &[u8]) -> bool {
        self.key_len() >= prefix.len() && self.region.bytes_equal(self.key_at(), prefix)
    }

    /// Copies as much of the key as fits; returns the number of bytes.
    pub fn copy_key(&self, into: &mut [u8]) -> usize {
        let len = self.key_len().min(into.len());
        self.region.copy_out(self.key_at(), &mut into[..len]);
        len
    }

    /// Copies the value to the start of `into`; false, and nothing copied, if it does not fit.
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

    pub fn value_equals(&self, value: &[u8]) -> bool {
        value.len() == self.value_len()
            && self.extents(|at, from, len| {
                value
                    .get(from..from + len)
                    .is_some_and(|part| self.region.bytes_equal(at, part))
            })
    }

    /// Calls `visit(offset in the region, offset in the value, length)` for each piece of the value until
    /// one call gives false.
    #[inline]
    fn extents(&self, mut visit: impl FnMut(usize, usize, usize) -> bool) -> bool {
        let key_end = self.key_at() + self.key_len();
        if !self.extended() {
            return visit(key_end, 0, self.value_len());
        }
        let place = self.place();
        let mut page = place.first_page;
        let mut from = 0;
        for _ in 0..place.pages {
            if !visit(self.region.page_at(page), from, PAGE) {
                return false;
            }
            from += PAGE;
            page = self.region.next_page(page);
        }
        let shape = self.shape();
        let in_head = shape.rest.min(shape.head_room(place.head_len));
        let tail_at = place.tail as usize * GRANULE + TAIL_HEADER;
        visit(key_end, from, in_head)
            && (place.tail == 0 || visit(tail_at, from + in_head, shape.rest - in_head))
    }

    /// Writes everything but the queue links and the slot into memory that no index slot names yet.
    pub(crate) fn write(&self, place: &Place, key: &Key, record: &Record) {
        self.set_word(0, 0);
        self.set_word(1, pair(0, key.cache));
        self.set_lengths(place, key.bytes.len(), record);
        if place.extended() {
            self.set_word(5, pair(place.first_page, place.tail));
        }
        if place.tail != 0 {
            self.adopt_tail(place.tail, place.tail_len);
        }
        self.region.copy_in(self.key_at(), key.bytes);
        self.write_value(record);
    }

    fn set_lengths(&self, place: &Place, key_len: usize, record: &Record) {
        let flags = u64::from(record.negative) * NEGATIVE + u64::from(place.extended()) * EXTENDED;
        let lengths = record.value.len() as u64
            | (key_len as u64) << 32
            | u64::from(place.head_len - 1) << 44
            | u64::from(record.kind) << 50
            | flags << 58;
        self.set_word(2, lengths);
    }

    fn write_value(&self, record: &Record) {
        self.set_word(3, record.deadline as u64);
        self.set_word(4, record.version);
        self.extents(|at, from, len| {
            if let Some(part) = record.value.get(from..from + len) {
                self.region.copy_in(at, part);
            }
            true
        });
    }

    /// Writes another value of the same footprint into the same memory.
    pub(crate) fn rewrite(&self, record: &Record) {
        self.set_lengths(&self.place(), self.key_len(), record);
        self.write_value(record);
    }

    /// True if a value of this length takes just the memory the entry has.
    pub(crate) fn fits_in_place(&self, value_len: usize) -> bool {
        let (place, shape) = (self.place(), Shape::new(self.key_len(), value_len));
        let runs_fit = match (place.tail, self.extended() == (shape.pages > 0)) {
            (0, true) => shape.single() == place.head_len,
            (0, false) => false,
            _ => shape.tail(place.head_len) == place.tail_len,
        };
        runs_fit && shape.pages == place.pages
    }

    /// Names the head in the tail, so that a tail met in a page leads to its entry.
    pub(crate) fn adopt_tail(&self, tail: u32, tail_len: u32) {
        self.region
            .store(tail as usize * GRANULE, pair(self.location, tail_len));
    }

    pub(crate) fn set_tail(&self, tail: u32) {
        self.set_word(5, pair(self.word(5) as u32, tail));
    }

    pub(crate) fn set_links(&self, newer: u32, older: u32) {
        self.set_word(0, pair(newer, older));
    }

    pub(crate) fn set_newer(&self, newer: u32) {
        self.set_links(newer, self.older());
    }

    pub(crate) fn set_older(&self, older: u32) {
        self.set_links(self.newer(), older);
    }

    pub(crate) fn set_slot(&self, slot: u32) {
        self.set_word(1, pair(slot, (self.word(1) >> 32) as u32));
    }

    pub(crate) fn set_deadline(&self, deadline: i64) {
        self.set_word(3, deadline as u64);
    }
}
