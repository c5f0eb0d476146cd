//! The format of the region: every size, offset and word.
//!
//! This file only computes; it accesses no memory. For every size and number of partitions, `region_bytes() <= size`,
//! bookkeeping included.
//!
//! ```text
//! | header | P partition headers | P x stripes | P x buckets | pool bits | page table | pages ... |
//!   256 B    2 KiB each            8 B each      64 B each     1 bit/page  32 B/page    4 KiB each
//! ```
//! All words have 64 bits and are aligned to 8 bytes. The modules below define the words of each part by their byte
//! offsets in the part. The bits of an index slot are defined in `index.rs`, the only file that reads them.

use crate::params::Params;
pub use crate::params::{ENTRY_HEADER, GRANULE};

/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Granules in a page: as many as a bitmap word has bits.
pub const PAGE_GRANULES: u32 = 64;
pub const HEADER_BYTES: usize = 256;
pub const PARTITION_BYTES: usize = 2048;
/// The number of latest insertions that a partition's journal holds.
pub const JOURNAL_PLACES: u64 = 128;
pub const STRIPE_BYTES: usize = 8;
pub const BUCKET_BYTES: usize = 64;
pub const PAGE_META_BYTES: usize = 32;
/// Bytes that locations (32-bit granule numbers) can address: 256 GiB.
pub const MAX_REGION: usize = 1 << 38;
const MIN_PAGES: usize = 16;
const MAX_PARTITIONS: u32 = 1024;

/// The number that means "no page": the end of a list of pages or of a value's chain of pages. As an owner it means "no
/// partition".
pub const NO_PAGE: u32 = (1 << 26) - 1;

/// The region's header.
pub mod region_word {
    pub const MAGIC: usize = 0;
    pub const SIZE: usize = 8;
    pub const PAGES: usize = 16;
    pub const PARTITIONS: usize = 24;
    /// The word that an access outside the region reads or writes instead.
    pub const SCRAP: usize = 32;
    /// The number of free pages. Every partition that takes pages writes this word and the next, so the two words are
    /// on a separate cache line.
    pub const FREE_PAGES: usize = 128;
    /// The index of the pool's summary word where the last search found a free page.
    pub const SUMMARY_HINT: usize = 136;
    /// The position of the walk over the arena that chooses victims; on another cache line.
    pub const VICTIM_HAND: usize = 192;
}

/// A partition's header.
pub mod partition_word {
    /// The small queue of S3-FIFO, with the words of `queue_word`.
    pub const SMALL: usize = 0;
    /// The main queue of S3-FIFO, with the words of `queue_word`.
    pub const MAIN: usize = 32;
    /// The number of granules evicted from the small queue so far: the clock for the age of ghosts.
    pub const GHOST_CLOCK: usize = 64;
    /// A bit mask of hole lengths. A bit is set if the longest hole of some page has this length.
    pub const HOLE_LISTS: usize = 72;
    /// The number of pages that hold runs.
    pub const RUN_PAGES: usize = 80;
    /// The number of granules in runs.
    pub const RUN_GRANULES: usize = 88;
    /// The number of pages that belong to a large value.
    pub const VALUE_PAGES: usize = 96;
    /// The number of short entries that are split into two runs.
    pub const SHORT_SPLITS: usize = 104;
    /// The number of writes so far of values that have whole pages. Each of these writes takes the next number as its
    /// sequence number.
    pub const WRITINGS: usize = 112;
    /// 1 if an entry has had to make room since the partition was last empty; 0 while the partition is still filling.
    pub const FULL: usize = 120;
    /// The index slot at which the next search for entries of a cache over its bound begins. It is in the word of the
    /// last counter, which is unused.
    pub const SHARE_HAND: usize = 248;
    /// The counters that writers change under the exclusive lock.
    pub const COUNTERS: usize = 128;
    /// The counters that readers change, on another cache line.
    pub const READ_COUNTERS: usize = 256;
    /// The first page of each list of pages, by the length of the pages' longest hole: 64 words, for 1 to 64 granules.
    pub const HOLE_HEADS: usize = 384;
    /// The number of keys inserted so far. The journal holds the index slots of the last 128: 128 words.
    pub const INSERTED: usize = 896;
    pub const JOURNAL: usize = 1024;
}

/// A queue in a partition's header.
pub mod queue_word {
    /// The location of the newest entry; 0 if the queue is empty.
    pub const NEWEST: usize = 0;
    /// The location of the oldest entry; 0 if the queue is empty.
    pub const OLDEST: usize = 8;
    pub const COUNT: usize = 16;
    pub const GRANULES: usize = 24;
}

/// A page's row in the page table.
///
/// ```text
/// LINK: owner (12 bits) << 52 | previous page (26) << 26 | next page (26)
/// ```
pub mod page_word {
    /// A bit mask of the granules in use.
    pub const USED: usize = 0;
    /// A bit mask of the granules that start a head run.
    pub const HEADS: usize = 8;
    /// A bit mask of the granules that start a tail run.
    pub const TAILS: usize = 16;
    /// The sequence number of a value's write, in the row of the value's first page. It can share the word, because no
    /// run starts in a page that belongs to a value. No other write in the partition has the same number.
    pub const WRITING: usize = HEADS;
    pub const LINK: usize = 24;
    pub const PREVIOUS_SHIFT: u32 = 26;
    pub const OWNER_SHIFT: u32 = 52;
    /// The owner in the row of a free page.
    pub const NO_OWNER: u64 = (1 << 12) - 1;
}

/// An entry's header in its head run. The key follows, then the bytes of the value that are in this run.
pub mod entry_word {
    /// Newer entry (32 bits) | older entry (32): the links of the eviction queue, as locations.
    pub const LINKS: usize = 0;
    /// Index slot (32) | cache (32).
    pub const SLOT_AND_CACHE: usize = 8;
    /// Value length (32) | key length (12) | granules of the head run - 1 (6) | kind (8) | flags (6).
    pub const LENGTHS: usize = 16;
    pub const KEY_LEN_SHIFT: u32 = 32;
    pub const HEAD_LEN_SHIFT: u32 = 44;
    pub const KIND_SHIFT: u32 = 50;
    pub const FLAGS_SHIFT: u32 = 58;
    pub const DEADLINE: usize = 24;
    pub const VERSION: usize = 32;
    /// First value page (32) | tail run (32). Present only with the flag `EXTENDED`.
    pub const EXTENSION: usize = 40;
    /// A flag: the entry is a stored NULL.
    pub const NEGATIVE: u64 = 1;
    /// A flag: part of the value is outside the head run.
    pub const EXTENDED: u64 = 2;
}

/// The size of the header with the flag `EXTENDED`.
pub const EXTENDED_HEADER: usize = 48;
/// Bytes before the value in a tail run: location of the head (32 bits) | granules of the tail (32).
pub const TAIL_HEADER: usize = 8;

/// The reason why parameters have no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The size leaves no room for even the smallest arena.
    TooSmall,
    /// The number of partitions is not a power of two, or is too large for the size to leave an arena of useful size.
    BadPartitions,
    /// A parameter of the policy is outside the range that [`Params`] states.
    BadParams,
}

/// The offsets and counts of a region, all derived from [`Params`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(crate) params: Params,
    pub(crate) partitions: u32,
    pub(crate) stripes: u32,
    pub(crate) buckets: u32,
    pub(crate) pages: u32,
    pub(crate) partitions_at: usize,
    pub(crate) stripes_at: usize,
    pub(crate) buckets_at: usize,
    pub(crate) pool_at: usize,
    pub(crate) pool_words: usize,
    pub(crate) summary_at: usize,
    pub(crate) summary_words: usize,
    pub(crate) page_table_at: usize,
    pub(crate) arena_at: usize,
}

impl Layout {
    /// Returns the layout for a region of at most `size` bytes. If `partitions` is 0, derives the number from the size.
    pub fn new(size: usize, partitions: u32) -> Result<Layout, LayoutError> {
        Layout::with(Params::new(size, partitions))
    }

    /// Returns the layout for these parameters, with as many pages as fit, or the reason why they have no layout.
    pub fn with(params: Params) -> Result<Layout, LayoutError> {
        let size = params.size.min(MAX_REGION);
        if params.bytes_per_slot < 16 || params.small_percent > 90 || params.ghost_percent > 1000 {
            return Err(LayoutError::BadParams);
        }
        let partitions = match params.partitions {
            0 => partitions_for(size),
            n if n.is_power_of_two() && n <= MAX_PARTITIONS => n,
            _ => return Err(LayoutError::BadPartitions),
        };
        let mut pages = size / (PAGE + PAGE_META_BYTES);
        while pages >= MIN_PAGES {
            let layout = Layout::place(params, partitions, pages);
            let over = layout.region_bytes().saturating_sub(size);
            if over == 0 {
                return layout.check();
            }
            pages -= over.div_ceil(PAGE * 2).min(pages);
        }
        Err(LayoutError::TooSmall)
    }

    fn check(self) -> Result<Layout, LayoutError> {
        let enough = self.pages >= self.partitions * 4 || self.partitions == 1;
        if enough {
            Ok(self)
        } else {
            Err(LayoutError::BadPartitions)
        }
    }

    fn place(params: Params, partitions: u32, pages: usize) -> Layout {
        let count = partitions as usize;
        let slots = pages * PAGE / params.bytes_per_slot as usize;
        let buckets = (slots / 8 / count).max(2);
        // One stripe for every four pages suffices: if two keys share a stripe, a change of one costs the other only a
        // missed fill.
        let stripes = (pages / 4 / count).clamp(16, 4096).next_power_of_two();
        let pool_words = pages.div_ceil(64);
        let summary_words = pool_words.div_ceil(64);
        let partitions_at = HEADER_BYTES;
        let stripes_at = partitions_at + count * PARTITION_BYTES;
        let buckets_at = stripes_at + count * stripes * STRIPE_BYTES;
        let pool_at = buckets_at + count * buckets * BUCKET_BYTES;
        let summary_at = pool_at + pool_words * 8;
        let page_table_at = (summary_at + summary_words * 8).next_multiple_of(GRANULE);
        Layout {
            params,
            partitions,
            stripes: stripes as u32,
            buckets: buckets as u32,
            pages: pages as u32,
            partitions_at,
            stripes_at,
            buckets_at,
            pool_at,
            pool_words,
            summary_at,
            summary_words,
            page_table_at,
            arena_at: (page_table_at + pages * PAGE_META_BYTES).next_multiple_of(GRANULE),
        }
    }

    /// Returns the bytes that the caller must reserve; never more than the requested size.
    pub fn region_bytes(&self) -> usize {
        self.arena_at + self.arena_bytes()
    }

    /// Returns the number of partitions, which is also the number of locks.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Returns the bytes of the arena, which holds the entries with their headers.
    pub fn arena_bytes(&self) -> usize {
        self.pages as usize * PAGE
    }

    /// Returns the number of slots in a partition's index: the range of a [`crate::Cursor`].
    pub fn slots(&self) -> u32 {
        self.buckets * (BUCKET_BYTES / 8) as u32
    }

    /// Returns the maximum length of a value under a key of this length: half of the arena, so that an overwrite finds
    /// room beside the old value.
    pub fn max_value(&self, key_len: usize) -> usize {
        let most = (self.pages as usize / 2).saturating_sub(2) * PAGE;
        most.min(u32::MAX as usize)
            .saturating_sub(key_len + 2 * GRANULE)
    }
}

/// Returns the number of partitions: at least 2 MiB each; up to 64 below 8 GiB, because few large partitions evict
/// better than many small ones; above that, doubling up to 256.
fn partitions_for(size: usize) -> u32 {
    let by_size = (size >> 21).max(1);
    let floor = 1u32 << by_size.min(256).ilog2();
    match size >> 30 {
        0..8 => floor.min(64),
        8..16 => floor.min(128),
        _ => floor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_never_exceeds_the_requested_size() {
        for size in (100_000..40_000_000).step_by(333_333) {
            for partitions in [0, 1, 2, 64, 256] {
                if let Ok(layout) = Layout::new(size, partitions) {
                    assert!(layout.region_bytes() <= size, "{size} {partitions}");
                }
            }
        }
    }

    #[test]
    fn bookkeeping_takes_less_than_nine_percent_of_a_large_region() {
        for size in [64 << 20, 1 << 30, 64 << 30, 256 << 30] {
            let layout = Layout::new(size, 0).unwrap();
            assert!(
                layout.arena_bytes() as f64 > 0.91 * size as f64,
                "{layout:?}"
            );
        }
    }

    #[test]
    fn partitions_get_two_mebibytes_each_or_are_fewer() {
        assert_eq!(Layout::new(1 << 20, 0).unwrap().partitions(), 1);
        assert_eq!(Layout::new(64 << 20, 0).unwrap().partitions(), 32);
        assert_eq!(Layout::new(2 << 30, 0).unwrap().partitions(), 64);
        assert_eq!(Layout::new(64 << 30, 0).unwrap().partitions(), 256);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Layout::new(1000, 0), Err(LayoutError::TooSmall));
        assert_eq!(Layout::new(64 << 20, 3), Err(LayoutError::BadPartitions));
        assert_eq!(Layout::new(1 << 20, 256), Err(LayoutError::BadPartitions));
    }
}
