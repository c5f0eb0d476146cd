//! The queues of S3-FIFO: doubly linked lists whose links are in the entries' headers.
//!
//! The store unlinks an entry before any removal, so no queue refers to an entry that no longer exists. All sizes are
//! counted in granules. `eviction` chooses the entry to evict.

use crate::layout::{partition_word, queue_word};
use crate::partition::PartitionMut;

/// Returns the offset of a queue in the partition's header.
pub fn queue_of(main: bool) -> usize {
    if main {
        partition_word::MAIN
    } else {
        partition_word::SMALL
    }
}

impl PartitionMut<'_> {
    /// Puts an entry at the young end of a queue. The entry's slot already refers to it.
    pub(crate) fn enqueue(&mut self, main: bool, location: u32, granules: u64) {
        let queue = queue_of(main);
        let second = self.field(queue + queue_word::NEWEST) as u32;
        self.entry(location).set_links(0, second);
        match second {
            0 => self.set_field(queue + queue_word::OLDEST, u64::from(location)),
            _ => self.entry(second).set_newer(location),
        }
        self.set_field(queue + queue_word::NEWEST, u64::from(location));
        self.add_field(queue + queue_word::COUNT, 1);
        self.add_field(queue + queue_word::GRANULES, granules);
    }

    pub(crate) fn dequeue(&mut self, main: bool, location: u32, granules: u64) {
        let queue = queue_of(main);
        let entry = self.entry(location);
        self.join(queue, entry.newer(), entry.older());
        self.sub_field(queue + queue_word::COUNT, 1);
        self.sub_field(queue + queue_word::GRANULES, granules);
    }

    /// Links two entries as neighbours; 0 means the end of the queue.
    fn join(&mut self, queue: usize, newer: u32, older: u32) {
        match newer {
            0 => self.set_field(queue + queue_word::NEWEST, u64::from(older)),
            _ => self.entry(newer).set_older(older),
        }
        match older {
            0 => self.set_field(queue + queue_word::OLDEST, u64::from(newer)),
            _ => self.entry(older).set_newer(newer),
        }
    }

    /// Replaces an entry in its queue by its copy at a new location.
    pub(crate) fn relink(&mut self, main: bool, old: u32, new: u32) {
        let queue = queue_of(main);
        let (newer, older) = (self.entry(old).newer(), self.entry(old).older());
        self.entry(new).set_links(newer, older);
        self.join(queue, newer, new);
        self.join(queue, new, older);
    }

    /// Adjusts the size of a queue after an overwrite changed the size of an entry.
    pub(crate) fn resize_in_queue(&mut self, main: bool, before: u64, after: u64) {
        let at = queue_of(main) + queue_word::GRANULES;
        self.set_field(at, (self.field(at) + after).saturating_sub(before));
    }

    /// Returns the granules of all entries.
    pub(crate) fn granules(&self) -> u64 {
        self.field(partition_word::SMALL + queue_word::GRANULES)
            + self.field(partition_word::MAIN + queue_word::GRANULES)
    }

    pub(crate) fn entries(&self) -> u64 {
        self.field(partition_word::SMALL + queue_word::COUNT)
            + self.field(partition_word::MAIN + queue_word::COUNT)
    }
}
