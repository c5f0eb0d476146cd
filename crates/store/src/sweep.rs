//! Walks over a partition in bounded steps: scans under the shared lock, sweeps under the exclusive
//! one.
//!
//! What it is not: it keeps no state between steps but the caller's cursor.
//! The rule it guards: an entry never changes its slot, so a walk meets each entry that stays
//! exactly once, whatever else happens between its steps.

use crate::entry::EntryRef;
use crate::ledger::RemovalCause;
use crate::partition::{PartitionMut, PartitionRef};

/// How far a walk over one partition has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    slot: u32,
}

impl Cursor {
    /// A walk that goes on at this slot of the partition's index. Slots keep their numbers for as
    /// long as the region lives, so a place can be told to somebody and come back.
    pub fn at(slot: u32) -> Cursor {
        Cursor { slot }
    }

    /// The slot that the next step begins with.
    pub fn slot(self) -> u32 {
        self.slot
    }
}

/// What a sweep's judge decides about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays.
    Keep,
    /// It goes, and the ledger is told why.
    Remove(RemovalCause),
}

/// What a step of a sweep did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Entries that it removed.
    pub removed: u32,
    /// The walk has met the whole partition.
    pub done: bool,
}

impl PartitionRef<'_> {
    /// Visits the entries in the next `slots` slots, live in time or not; true when the walk is
    /// complete. A visit that gives false ends the step, and the next step goes on after that
    /// entry.
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
    /// Judges the entries in the next `slots` slots and removes those that the judge says. For
    /// expiry, for entries of a version that is past, for all entries of a cache, for a prefix.
    pub fn sweep(
        &mut self,
        cursor: &mut Cursor,
        slots: u32,
        mut judge: impl FnMut(&EntryRef) -> Verdict,
    ) -> Swept {
        self.sweep_by_use(cursor, slots, |entry, _| judge(entry))
    }

    /// The same for a judge who also asks how much an entry is used; see
    /// [`PartitionRef::use_rank`].
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
