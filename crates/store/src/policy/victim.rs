//! Chooses victims: the partition that gives pages, and the queue that loses the next entry.
//!
//! This file chooses partitions so that their many small queues behave like one large queue. The functions of `Region`
//! hold no lock, and other processes may change the words that they read, so their results are hints. `eviction.rs`
//! removes the entries.

use core::sync::atomic::Ordering::Relaxed;

use super::queue::queue_of;
use crate::layout::{NO_PAGE, partition_word, queue_word, region_word};
use crate::partition::PartitionMut;
use crate::region::Region;

/// The number of pages whose owner the search checks, before it tries the partitions one after the other.
const VICTIM_PROBES: usize = 16;
/// 2^32 divided by the golden ratio. The multiples of this number, modulo 2^32, are spread evenly over the arena
/// (Knuth, "The Art of Computer Programming", volume 3, section 6.4).
const GOLDEN_STRIDE: u64 = 0x9E37_79B1;

/// The minimum number of entries of a partition that follows its own queues; a partition with fewer entries follows the
/// queues of the whole tier. Adding up these queues costs as much as copying a small value, so a partition with long
/// queues avoids it.
const MIN_ENTRIES_FOR_OWN_POLICY: u64 = 256;

/// The granules in each kind of queue.
#[derive(Default)]
struct QueueGranules {
    small: u64,
    main: u64,
}

impl Region {
    /// Returns the sums of both queues over all partitions. Reads without locks, so the sums are approximate.
    fn queues(&self) -> QueueGranules {
        let mut sums = QueueGranules::default();
        for id in 0..self.layout.partitions {
            let base = self.partition_at(id);
            let load = |word: usize| self.load(base + word);
            sums.small += load(partition_word::SMALL + queue_word::GRANULES);
            sums.main += load(partition_word::MAIN + queue_word::GRANULES);
        }
        sums
    }

    /// Returns whether the small queues together hold more than their share.
    fn small_exceeds_share(&self, queues: &QueueGranules) -> bool {
        let all = queues.small + queues.main;
        queues.small * 100 > all * u64::from(self.layout.params.small_percent)
    }

    /// Returns the queue that should give the tier's next entry to evict.
    pub(crate) fn queue_to_evict_from(&self) -> usize {
        queue_of(!self.small_exceeds_share(&self.queues()))
    }

    /// Returns whether a partition has an entry in the queue `wanted`; true if `wanted` is None.
    pub(crate) fn has_entry_in(&self, id: u32, wanted: Option<usize>) -> bool {
        wanted.is_none_or(|queue| self.load(self.partition_at(id) + queue + queue_word::COUNT) > 0)
    }

    /// Returns the partition that should give pages: the owner of the next page in a walk that visits the arena evenly.
    /// The walk chooses partitions in proportion to the memory that they hold. So an entry's time in the tier does not
    /// depend on its partition, and many small queues behave like one large queue. With `defers_to_tier`, the shares of
    /// the whole tier choose the queue that loses the next entry, and the walk chooses only an owner with an entry in
    /// this queue.
    pub(crate) fn next_victim(&self, defers_to_tier: bool) -> u32 {
        let pages = u64::from(self.layout.pages);
        let wanted = defers_to_tier.then(|| self.queue_to_evict_from());
        let mut turn = 0;
        for _ in 0..VICTIM_PROBES {
            turn = self.word(region_word::VICTIM_HAND).fetch_add(1, Relaxed);
            let page = ((turn.wrapping_mul(GOLDEN_STRIDE) & 0xFFFF_FFFF) * pages) >> 32;
            match self.page_owner(page as u32) {
                NO_PAGE => continue,
                owner if self.has_entry_in(owner, wanted) => {
                    return owner & (self.layout.partitions - 1);
                }
                _ => continue,
            }
        }
        let last = self.layout.partitions - 1;
        let from = turn as u32 & last;
        (0..=last)
            .map(|step| (from + step) & last)
            .find(|id| self.has_entry_in(*id, wanted))
            .unwrap_or(from)
    }
}

impl PartitionMut<'_> {
    /// Returns whether the partition has too few entries to follow its own queues, so that the shares of the whole tier
    /// choose the next entry to evict.
    pub(crate) fn defers_to_tier(&self) -> bool {
        self.entries() < MIN_ENTRIES_FOR_OWN_POLICY && self.region().layout.partitions > 1
    }

    /// Returns whether the small queue holds more than its share. If one queue is empty, only the other can give an
    /// entry: returns true if the main queue is empty. With few entries in this partition (large values), the shares of
    /// the whole tier decide, because a small queue of three entries cannot hold five percent.
    pub(crate) fn small_exceeds_its_share(&self) -> bool {
        if self.field(partition_word::SMALL + queue_word::COUNT) == 0
            || self.field(partition_word::MAIN + queue_word::COUNT) == 0
        {
            return self.field(partition_word::MAIN + queue_word::COUNT) == 0;
        }
        let queues = match self.defers_to_tier() {
            true => self.region().queues(),
            false => QueueGranules {
                small: self.field(partition_word::SMALL + queue_word::GRANULES),
                main: self.field(partition_word::MAIN + queue_word::GRANULES),
            },
        };
        self.region().small_exceeds_share(&queues)
    }
}
