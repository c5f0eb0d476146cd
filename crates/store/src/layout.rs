//! Where everything lies in the region: the one place that computes sizes and offsets.
//!
//! What it is not: it touches no memory. The rule it guards: `region_bytes() <= size`, bookkeeping
//! included, for every size and number of partitions.
//!
//! ```text
//! | header | P partition headers | P x stripes | P x buckets | pool bits | page table | pages ... |
//!   256 B    1 KiB each            16 B each     64 B each     1 bit/page  32 B/page    4 KiB each
//! ```

/// Bytes in a granule, the unit of space.
pub const GRANULE: usize = 64;
/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Granules in a page: as many as a bitmap word has bits.
pub const PAGE_GRANULES: u32 = 64;
pub const HEADER_BYTES: usize = 256;
pub const PARTITION_BYTES: usize = 1024;
pub const STRIPE_BYTES: usize = 16;
pub const BUCKET_BYTES: usize = 64;
pub const PAGE_META_BYTES: usize = 32;
/// Locations are 32-bit granule numbers, so this is all the region they can address.
pub const MAX_REGION: usize = 1 << 38;
const MIN_PAGES: usize = 16;
const MAX_PARTITIONS: u32 = 1024;

/// What a tier is made of. `Layout::new` fills in the defaults; tests and benchmarks vary them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The region is never larger than this.
    pub size: usize,
    /// A power of two up to 1024, or 0: chosen by size.
    pub partitions: u32,
    /// Arena bytes for each 8-byte index slot: 5 % for the index at 144, and entries of 37-byte values
    /// (128 bytes) still fill four fifths of the arena.
    pub bytes_per_slot: u32,
    /// Share of a partition's bytes that new entries may hold before they prove themselves.
    pub small_percent: u32,
    /// Evicted bytes that ghosts remember, in percent of the bytes a partition holds.
    pub ghost_percent: u32,
    /// Hits in the small queue that move an entry to the main queue.
    pub promote_hits: u32,
}

impl Params {
    pub const fn new(size: usize, partitions: u32) -> Params {
        Params {
            size,
            partitions,
            bytes_per_slot: 144,
            // Measured against 10, 3 and 20: best or near it on every trace of the hit-rate example.
            small_percent: 5,
            // 20 forgets loops and scans too early, 100 costs the two-class load 1.5 points.
            ghost_percent: 50,
            promote_hits: 2,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The size leaves no room for even the smallest arena.
    TooSmall,
    /// Not a power of two, or more than the size can feed with an arena of useful size.
    BadPartitions,
    /// A share above 100 percent or a slot density of zero.
    BadParams,
}

/// Offsets and counts, all derived from [`Params`].
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
    /// The layout for a region of at most `size` bytes; `partitions` 0 means chosen by size.
    pub fn new(size: usize, partitions: u32) -> Result<Layout, LayoutError> {
        Layout::with(Params::new(size, partitions))
    }

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
        // A stripe for every four pages: false sharing of a stripe only costs a missed fill.
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

    /// What the caller must reserve; never more than the size it asked with.
    pub fn region_bytes(&self) -> usize {
        self.arena_at + self.arena_bytes()
    }

    /// Number of partitions, hence of locks.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Bytes that entries can live in, their headers included.
    pub fn arena_bytes(&self) -> usize {
        self.pages as usize * PAGE
    }

    /// The longest value that can be stored under a key of this length: half of the arena, so that
    /// an overwrite finds room beside the old value.
    pub fn max_value(&self, key_len: usize) -> usize {
        let most = (self.pages as usize / 2).saturating_sub(2) * PAGE;
        most.min(u32::MAX as usize)
            .saturating_sub(key_len + 2 * GRANULE)
    }
}

/// At least 2 MiB each; 64 serve up to 8 GiB, because few large partitions evict better than many
/// small ones; then doubling to 256.
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
    fn region_never_exceeds_the_size_asked_for() {
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
