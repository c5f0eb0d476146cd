//! The journal of a partition: the index slots that have recently received a new key.
//!
//! A caller that has walked over the partition can follow the journal to find the keys that were added since,
//! without a second walk. If the journal no longer reaches back to the walk, the caller is notified. The journal
//! records new keys only: no values, no overwrites (which keep their slot), and no removals.

use crate::entry::EntryRef;
use crate::index::IndexSlot;
use crate::layout::{JOURNAL_PLACES, partition_word};
use crate::partition::{PartitionMut, PartitionRef};
use crate::region::Region;

impl Region {
    /// Returns how many keys a partition has received so far, like [`PartitionRef::inserted`], but without its lock.
    /// The result includes at least all insertions that the caller knows of.
    pub fn inserted(&self, partition: u32) -> u64 {
        self.load(self.partition_at(partition) + partition_word::INSERTED)
    }
}

impl PartitionRef<'_> {
    /// Returns how many keys were inserted so far. A caller that wants to continue a walk by the journal reads this
    /// number before the walk begins.
    pub fn inserted(&self) -> u64 {
        self.field(partition_word::INSERTED)
    }

    /// Visits the entries in the slots that have received a key since `seen` was the result of
    /// [`PartitionRef::inserted`], whether expired or not, and moves `seen` forward. Returns true at the end of the
    /// journal. A visit that returns false ends the step, and the next step continues after that entry. None: the
    /// journal does not reach back so far, so the caller must walk again.
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
