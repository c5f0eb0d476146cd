//! What a tier is made of: its size, how it is cut, and the three numbers of its eviction policy.
//!
//! The policy is S3-FIFO (Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache
//! eviction", SOSP 2023), counted in bytes instead of entries. Where a default differs from the
//! paper's, it says why; what was measured, `examples/hit_rates.rs` measures again.

/// What a tier is made of. [`Params::new`] fills in the defaults; tests and benchmarks vary them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// In bytes. The region is never larger than this.
    pub size: usize,
    /// A power of two up to 1024, or 0: chosen by size.
    pub partitions: u32,
    /// Arena bytes for each 8-byte index slot, at least 16: 5 % for the index at 144, and entries
    /// of 37-byte values (128 bytes) still fill four fifths of the arena.
    pub bytes_per_slot: u32,
    /// Percent of a partition's bytes that new entries may hold before they prove themselves, at
    /// most 90. The paper has 10.
    pub small_percent: u32,
    /// Evicted bytes that ghosts remember, in percent of the bytes that a partition holds, at most
    /// 1000. The paper has 90, the size of the main queue.
    pub ghost_percent: u32,
    /// Hits in the small queue that move an entry to the main queue; 2 in the paper. Hits are counted
    /// to 3.
    pub promote_hits: u32,
}

impl Params {
    /// The defaults, for a region of at most `size` bytes.
    pub const fn new(size: usize, partitions: u32) -> Params {
        Params {
            size,
            partitions,
            bytes_per_slot: 144,
            // 10 costs the two-class load a point. 5 loses as much where keys are read often while
            // they are new, and seldom later.
            small_percent: 7,
            // A loop that just fits returns to a key after it has evicted as many bytes as the
            // partition holds. With less, the main queue keeps what an older load left there.
            ghost_percent: 100,
            // 2 costs up to six points under churn, and gains nowhere more than one.
            promote_hits: 1,
        }
    }
}
