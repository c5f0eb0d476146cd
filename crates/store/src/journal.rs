//! The journal of a partition: which slots of its index have got a new key lately.
//!
//! What it is not: a log of values. An overwrite keeps its slot and is not in it, nor is a removal.
//! The rule it guards: whoever has walked the partition and then follows the journal has met every
//! key that is there, without walking again; or is told that the journal no longer reaches back to
//! the walk.

use crate::entry::EntryRef;
use crate::index::IndexSlot;
use crate::layout::{JOURNAL_PLACES, partition_word};
use crate::partition::{PartitionMut, PartitionRef};
use crate::region::Region;

impl Region {
    /// How many keys a partition has got so far: [`PartitionRef::inserted`] without its lock. It
    /// counts at least those whose insertion the caller has heard of in any other way.
    pub fn inserted(&self, partition: u32) -> u64 {
        self.load(self.partition_at(partition) + partition_word::INSERTED)
    }
}

impl PartitionRef<'_> {
    /// How many keys have come so far. To be asked before a walk begins that the journal is to
    /// continue.
    pub fn inserted(&self) -> u64 {
        self.field(partition_word::INSERTED)
    }

    /// Visits the entries in the slots that have got a key since `seen` was the answer of
    /// [`PartitionRef::inserted`], live in time or not, and moves `seen` on; true when that is all.
    /// A visit that gives false ends the step, and the next one goes on after that entry. None:
    /// the journal does not reach back so far, only a walk helps.
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

/// Where the journal has the slot of this insertion.
fn place(insertion: u64) -> usize {
    partition_word::JOURNAL + (insertion % JOURNAL_PLACES) as usize * 8
}
