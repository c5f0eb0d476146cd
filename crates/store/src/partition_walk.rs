//! Walks over a partition in bounded steps: scans under the shared lock, sweeps under the exclusive lock.
//!
//! An entry never changes its slot, so a walk meets each entry that stays exactly once, whatever changes occur between
//! its steps. The only state between two steps is the caller's cursor.

use crate::entry::EntryRef;
use crate::entry_events::RemovalCause;
use crate::partition::{PartitionMut, PartitionRef};

/// The progress of a walk over one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    slot: u32,
}

impl Cursor {
    /// Returns the cursor of a walk that continues at this slot of the partition's index. Slots keep their numbers
    /// while the region lives, so a caller may store a slot number and continue there later.
    pub fn at(slot: u32) -> Cursor {
        Cursor { slot }
    }

    /// Returns the first slot of the next step.
    pub fn slot(self) -> u32 {
        self.slot
    }
}

/// The decision of a sweep about one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The entry stays.
    Keep,
    /// The entry is removed, and the ledger receives the cause.
    Remove(RemovalCause),
}

/// The result of a step of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// The number of entries that the step removed.
    pub removed: u32,
    /// Whether the walk has covered the whole partition.
    pub done: bool,
}

impl PartitionRef<'_> {
    /// Visits the entries in the next `slots` slots, including expired entries; returns whether the walk is complete. A
    /// visit that returns false ends the step, and the next step continues after this entry.
    pub fn scan(
        &self,
        cursor: &mut Cursor,
        slots: u32,
        mut visit: impl FnMut(&EntryRef) -> bool,
    ) -> bool {
        for _ in 0..slots {
            if cursor.slot >= self.slot_count() {
                break;
            }
            let slot = self.slot(cursor.slot);
            cursor.slot += 1;
            if slot.is_live() && !visit(&self.entry(slot.location())) {
                break;
            }
        }
        cursor.slot >= self.slot_count()
    }
}

impl PartitionMut<'_> {
    /// Calls `judge` for the entries in the next `slots` slots, and removes each entry for which it returns `Remove`.
    /// Callers use a sweep to remove expired entries, entries of an old version, all entries of a cache, or entries
    /// with a prefix.
    pub fn sweep(
        &mut self,
        cursor: &mut Cursor,
        slots: u32,
        mut judge: impl FnMut(&EntryRef) -> Verdict,
    ) -> Swept {
        self.sweep_by_use(cursor, slots, |entry, _| judge(entry))
    }

    /// Sweeps with a `judge` that also receives the measure of an entry's use; see [`PartitionRef::use_rank`].
    pub fn sweep_by_use(
        &mut self,
        cursor: &mut Cursor,
        slots: u32,
        mut judge: impl FnMut(&EntryRef, u32) -> Verdict,
    ) -> Swept {
        let mut removed = 0;
        for _ in 0..slots {
            if cursor.slot >= self.slot_count() {
                break;
            }
            let slot = self.slot(cursor.slot);
            cursor.slot += 1;
            if !slot.is_live() {
                continue;
            }
            if let Verdict::Remove(cause) = judge(&self.entry(slot.location()), slot.use_rank()) {
                self.drop_entry(slot.location(), cause);
                removed += 1;
            }
        }
        Swept {
            removed,
            done: cursor.slot >= self.slot_count(),
        }
    }
}
