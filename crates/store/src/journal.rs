//! The journal of a partition: the index slots that have recently received a new key.
//!
//! Not a log of values: an overwrite keeps its slot and is not in it, nor is a removal. Guards that a caller that
//! walks the partition and then follows the journal meets every key in it without a second walk, or learns that the
//! journal no longer reaches back to the walk.

use crate::entry::EntryRef;
use crate::index::IndexSlot;
use crate::layout::{JOURNAL_PLACES, partition_word};
use crate::partition::{PartitionMut, PartitionRef};
use crate::region::Region;

impl Region {
    /// Returns how many keys a partition has received so far, as [`PartitionRef::inserted`] does, but without its
    /// lock. It counts at least the insertions that the caller knows of in any other way.
    pub fn inserted(&self, partition: u32) -> u64 {
        self.load(self.partition_at(partition) + partition_word::INSERTED)
    }
}

impl PartitionRef<'_> {
    /// Returns how many keys were inserted so far. To continue a walk by the journal, the caller reads this
    /// number before the walk begins.
    pub fn inserted(&self) -> u64 {
        self.field(partition_word::INSERTED)
    }

    /// Visits the entries in the slots that have received a key since `seen` was the result of
    /// [`PartitionRef::inserted`], live in time or not, and moves `seen` forward. Returns true at the end of the
    /// journal. A visit that returns false ends the step, and the next step continues after that entry. None: the
    /// journal does not reach back so far, so that only a walk helps.
    pub fn follow(&self, seen: &mut u64, mut visit: impl FnMut(&EntryRef) -> bool) -> Option<bool> {
        let inserted = self.inserted();
        if inserted.wrapping_sub(*seen) > JOURNAL_PLACES {
            return None;
        }
        while *seen != inserted {
            let slot = self.slot(self.field(place(*seen)) as u32);
            *seen = seen.wrapping_add(1);
            if slot.is_live() && !visit(&self.entry(slot.location())) {
                break;
            }
        }
        Some(*seen == inserted)
    }
}

impl PartitionMut<'_> {
    /// Puts a key that is new to the index into this slot.
    pub(crate) fn set_new_slot(&mut self, number: u32, slot: IndexSlot) {
        self.set_slot(number, slot);
        let inserted = self.inserted();
        self.set_field(place(inserted), u64::from(number));
        self.set_field(partition_word::INSERTED, inserted.wrapping_add(1));
    }
}

/// Returns the place of this insertion's slot in the journal.
fn place(insertion: u64) -> usize {
    partition_word::JOURNAL + (insertion % JOURNAL_PLACES) as usize * 8
}
