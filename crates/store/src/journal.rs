//! The journal of a partition: the index slots that have recently received a new key.
//!
//! A caller that has walked over the partition can follow the journal to find the keys that were added after the walk,
//! without a second walk. If the journal no longer reaches back to the walk, it reports this to the caller. The journal
//! records new keys only: no values, no overwrites (which keep their slot), and no removals.

use crate::entry::EntryRef;
use crate::index::IndexSlot;
use crate::layout::{JOURNAL_PLACES, partition_word};
use crate::partition::{PartitionMut, PartitionRef};
use crate::region::Region;

impl Region {
    /// Returns the number of keys that a partition has received so far, like [`PartitionRef::inserted`], but without
    /// the partition's lock. The result includes at least all insertions that the caller knows of.
    pub fn inserted(&self, partition: u32) -> u64 {
        self.load(self.partition_at(partition) + partition_word::INSERTED)
    }
}

impl PartitionRef<'_> {
    /// Returns the number of keys that the partition has received so far. A caller that wants to follow the journal
    /// after a walk reads this number before the walk.
    pub fn inserted(&self) -> u64 {
        self.field(partition_word::INSERTED)
    }

    /// Visits the entries in the slots that have received a key since [`PartitionRef::inserted`] returned `seen`,
    /// including expired entries, and moves `seen` forward. Returns true at the end of the journal. A visit that
    /// returns false ends the step, and the next step continues after this entry. Returns None if the journal does not
    /// reach back to `seen`, so that the caller must walk again.
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
    /// Puts a key that is new to the index into this slot, and records it in the journal.
    pub(crate) fn set_new_slot(&mut self, number: u32, slot: IndexSlot) {
        self.set_slot(number, slot);
        let inserted = self.inserted();
        self.set_field(place(inserted), u64::from(number));
        self.set_field(partition_word::INSERTED, inserted.wrapping_add(1));
    }
}

/// Returns the offset, in the partition's header, of the journal's word for this insertion.
fn place(insertion: u64) -> usize {
    partition_word::JOURNAL + (insertion % JOURNAL_PLACES) as usize * 8
}
