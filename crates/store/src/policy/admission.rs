//! Admits a new entry: chooses its index slot and its queue.
//!
//! Every new key joins the main queue until the partition must evict for the first time, and while its index is full.
//! At all other times, only a key with a young ghost may join the main queue; every other key joins the small queue.
//! This file evicts nothing.

use crate::index::{IndexSlot, SLOTS_PER_BUCKET};
use crate::layout::partition_word;
use crate::partition::PartitionMut;

/// The number of live entries in four buckets at which the index counts as full; four buckets have 32 slots.
const FULL_FOUR: u64 = 31;

impl PartitionMut<'_> {
    /// Returns whether the index is so full that a new entry must take the slot of another entry.
    pub(crate) fn index_is_full(&self) -> bool {
        self.entries() * 4 >= u64::from(self.region().layout.buckets) * FULL_FOUR
    }

    /// Returns whether the index is full once one more entry is stored. Ghosts find no slots in a full index, so the
    /// store cannot recognize a key that returns, and a key that may join only the small queue would never stay.
    pub(crate) fn fills_index(&self) -> bool {
        (self.entries() + 1) * 4 >= u64::from(self.region().layout.buckets) * FULL_FOUR
    }

    /// Returns whether no entry has had to make room yet. While this is true, new entries join the main queue.
    pub(crate) fn is_filling(&mut self) -> bool {
        if self.entries() == 0 {
            self.set_field(partition_word::FULL, 0);
        }
        self.field(partition_word::FULL) == 0
    }

    /// Returns whether a slot has a young ghost. A ghost is young until the bytes evicted since its creation exceed the
    /// ghosts' share of the bytes in the partition.
    pub(crate) fn ghost_is_young(&self, slot: IndexSlot) -> bool {
        let share = u64::from(self.region().layout.params.ghost_percent);
        let age = slot.ghost_age(self.field(partition_word::GHOST_CLOCK));
        slot.is_ghost() && u64::from(age) * 100 <= self.granules() * share
    }

    /// Returns the slot for a new key, and whether a young ghost shows that the key was evicted a short time ago.
    /// Prefers, in this order, the slot of the key's ghost, a slot that is empty or has an old ghost, and a slot with a
    /// young ghost. Returns None if all slots are live.
    pub(crate) fn choose_slot(&self, hash: u64) -> Option<(u32, bool)> {
        let probe = self.probe(hash);
        let mut vacant = [(0u32, None); 2];
        let mut oldest: Option<(u32, u32)> = None;
        let clock = self.field(partition_word::GHOST_CLOCK);
        for (position, number) in probe.slots().enumerate() {
            let slot = self.slot(number);
            if slot.is_ghost() && slot.tag() == probe.tag {
                return Some((number, self.ghost_is_young(slot)));
            }
            if slot == IndexSlot::EMPTY || slot.is_ghost() && !self.ghost_is_young(slot) {
                vacant[position / SLOTS_PER_BUCKET as usize].0 += 1;
                vacant[position / SLOTS_PER_BUCKET as usize].1 = Some(number);
            } else if slot.is_ghost() && oldest.is_none_or(|(age, _)| age < slot.ghost_age(clock)) {
                oldest = Some((slot.ghost_age(clock), number));
            }
        }
        // Choose the emptier bucket. By the power of two choices (Azar, Broder, Karlin and Upfal, 1994) this choice
        // fills an index to nine tenths.
        let emptier = vacant.into_iter().max_by_key(|(count, _)| *count);
        let number = emptier
            .and_then(|(_, number)| number)
            .or(oldest.map(|(_, number)| number));
        number.map(|number| (number, false))
    }
}
