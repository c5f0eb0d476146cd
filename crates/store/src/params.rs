//! The parameters of a tier: its size, its number of partitions, the density of its index, and the three numbers of
//! its eviction policy.
//!
//! The policy is S3-FIFO (Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction", SOSP
//! 2023), counted in bytes instead of entries. Each default that differs from the paper's has its reason beside it;
//! `examples/hit_rates.rs` repeats the measurements.

/// The bytes of a granule, the unit of space: a cache line.
pub const GRANULE: usize = 64;
/// The bytes of an entry's header. With a 16-byte key and a 512-byte value, an entry takes nine granules.
pub const ENTRY_HEADER: usize = 40;

/// The parameters of a tier. [`Params::new`] sets the defaults; tests and benchmarks vary them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The maximum size of the region in bytes.
    pub size: usize,
    /// The number of partitions: a power of two up to 1024, or 0 to derive it from the size.
    pub partitions: u32,
    /// Arena bytes for each 8-byte index slot, at least 16. [`Params::expecting`] derives it from the
    /// size of entries.
    pub bytes_per_slot: u32,
    /// The percentage of a partition's bytes that entries may hold in the small queue, before they have been hit
    /// often enough to leave it; at most 90. The paper has 10.
    pub small_percent: u32,
    /// The evicted bytes that ghosts remember, as a percentage of the bytes that a partition holds; at most 1000. The
    /// paper has 90, the size of the main queue.
    pub ghost_percent: u32,
    /// The number of hits in the small queue that move an entry to the main queue; 2 in the paper. The store counts
    /// hits up to 3.
    pub promote_hits: u32,
}

/// The default size of key and value for which a tier is laid out. With it, 5 % of the tier becomes index. If the index
/// takes 7 %, the two-class load of 512-byte values loses two points of hit rate, because the rest of the tier is
/// slightly too small for its hot set.
const ENTRY_SIZE: usize = 188;
/// The average bytes that an entry takes besides its key and value: its header, and half a granule for rounding.
const BESIDE_KEY_AND_VALUE: usize = 64;
/// The number of index slots for four entries. With 5 slots, ghosts find no room, so the tier does not keep a loop that
/// fits, and zipf loses two points. With 8 slots, nothing improves.
const SLOTS_FOR_FOUR: usize = 7;

impl Params {
    /// Returns the parameters for entries whose key and value have this many bytes on average. Entries of one size take
    /// whole granules; if sizes differ, rounding costs half a granule on average.
    pub const fn expecting(self, entry_size: usize) -> Params {
        let average = entry_size.saturating_add(BESIDE_KEY_AND_VALUE);
        let one = entry_size.saturating_add(ENTRY_HEADER).div_ceil(GRANULE);
        let exact = one.saturating_mul(GRANULE);
        let room = if exact > average { exact } else { average };
        let bytes_per_slot = room.saturating_mul(4) / SLOTS_FOR_FOUR;
        Params {
            bytes_per_slot: match bytes_per_slot > u32::MAX as usize {
                true => u32::MAX,
                false => bytes_per_slot as u32,
            },
            ..self
        }
    }

    /// Returns the average entry size of a tier with these totals, in the measure of `expecting`; None for an empty
    /// tier.
    pub const fn entry_size(bytes: u64, entries: u64) -> Option<usize> {
        match bytes.checked_div(entries) {
            Some(room) => Some((room as usize).saturating_sub(BESIDE_KEY_AND_VALUE)),
            None => None,
        }
    }

    /// Returns the defaults for a region of at most `size` bytes.
    pub const fn new(size: usize, partitions: u32) -> Params {
        Params {
            size,
            partitions,
            bytes_per_slot: 0,
            // With 10, the two-class load loses a point of hit rate. With 5, loads whose keys are read often at first
            // and rarely later lose as much.
            small_percent: 7,
            // A loop that just fits returns to a key after it has evicted as many bytes as the partition holds. With a
            // smaller value, the key's ghost is forgotten by then, so the main queue keeps the entries of an older
            // load.
            ghost_percent: 100,
            // 2 loses up to six points under churn, and gains at most one point under any load.
            promote_hits: 1,
        }
        .expecting(ENTRY_SIZE)
    }
}
