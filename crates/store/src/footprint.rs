//! Computes from the lengths of key and value how much memory an entry takes, and how the memory is divided into pages
//! and runs.
//!
//! A value fills whole pages first, then the head run, then the tail run. Each run wastes at most 63 bytes. `arena`
//! finds the memory.

use crate::layout::{ENTRY_HEADER, EXTENDED_HEADER, GRANULE, PAGE, PAGE_GRANULES, TAIL_HEADER};

/// The size of an entry's memory and of its parts. It follows from the lengths, so the entry need not store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    pub key_len: usize,
    /// The number of the value's whole pages.
    pub pages: u32,
    /// The bytes of the value in runs.
    pub run_bytes: usize,
}

impl Footprint {
    #[inline]
    pub fn new(key_len: usize, value_len: usize) -> Footprint {
        let whole = ENTRY_HEADER + key_len + value_len <= PAGE;
        let pages = if whole { 0 } else { value_len / PAGE };
        Footprint {
            key_len,
            pages: pages as u32,
            run_bytes: value_len - pages * PAGE,
        }
    }

    /// Returns the granules of a single run that holds the rest of the entry; above 64 the entry needs a tail.
    pub fn one_run_granules(&self) -> u32 {
        let header = if self.pages > 0 {
            EXTENDED_HEADER
        } else {
            ENTRY_HEADER
        };
        (header + self.key_len + self.run_bytes).div_ceil(GRANULE) as u32
    }

    /// Returns the granules of the shortest head run of an entry with a tail: the header and the key must fit in it.
    pub fn min_head_granules(&self) -> u32 {
        (EXTENDED_HEADER + self.key_len).div_ceil(GRANULE) as u32
    }

    /// Returns the granules of the tail beside a head of this size; 0 if the whole rest fits in the head.
    pub fn tail_granules(&self, head: u32) -> u32 {
        match self.run_bytes.saturating_sub(self.head_value_bytes(head)) {
            0 => 0,
            over => (over + TAIL_HEADER).div_ceil(GRANULE) as u32,
        }
    }

    /// Returns the bytes of the value that fit in an extended head.
    pub fn head_value_bytes(&self, head: u32) -> usize {
        (head as usize * GRANULE).saturating_sub(EXTENDED_HEADER + self.key_len)
    }
}

/// The memory of one entry: locations and lengths in granules, and page numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub head: u32,
    pub head_len: u32,
    /// The location of the tail; 0 if the entry has none.
    pub tail: u32,
    pub tail_len: u32,
    pub first_page: u32,
    pub pages: u32,
}

impl Allocation {
    pub fn granules(&self) -> u64 {
        u64::from(self.head_len + self.tail_len) + u64::from(self.pages) * u64::from(PAGE_GRANULES)
    }

    #[inline]
    pub fn extended(&self) -> bool {
        self.tail != 0 || self.pages > 0
    }
}
