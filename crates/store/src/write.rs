//! Storing an entry: find memory, evicting as needed, then write, then name it in the index.
//!
//! What it is not: it does not take pages from partitions whose lock the caller does not hold; it
//! says which partition to ask (`NeedPages`).
//! The rule it guards: memory first, index last. A key's old entry stays until the new one is
//! written, and a closure of the caller runs only between steps that leave the structure valid.

use crate::arena::pool::Grant;
use crate::entry::{EntryRef, Key, MAX_KEY, NewEntry};
use crate::footprint::{Allocation, Footprint};
use crate::index::IndexSlot;
use crate::layout::{PAGE, partition_word};
use crate::ledger::{Counter, EntryEvent, RemovalCause};
use crate::partition::PartitionMut;

/// How often a caller should answer `NeedPages` before it takes its write as evicted at once.
pub const SET_ROUNDS: usize = 96;

/// The answer of [`PartitionMut::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// The entry is there.
    Stored {
        /// It took the place of an entry of this key.
        replaced: bool,
    },
    /// Release the lock, lock `victim`, `reclaim(pages)` there into the same grant, and come back.
    NeedPages {
        /// What the grant must cover in total.
        pages: u32,
        /// The partition to take them from.
        victim: u32,
    },
    /// Longer than `Layout::max_value`, or a key that is empty or above `MAX_KEY`. Nothing has
    /// changed: an old entry of the key is still there.
    TooLarge,
}

impl PartitionMut<'_> {
    /// Inserts or overwrites. `now`: microseconds on the caller's clock, for expired entries met by
    /// an eviction. An overwrite counts as a hit and keeps the entry's place in its queue.
    pub fn set(&mut self, key: &Key, new: &NewEntry, now: i64, grant: &mut Grant) -> SetOutcome {
        let longest = self.region().layout.max_value(key.bytes.len());
        if key.bytes.is_empty() || key.bytes.len() > MAX_KEY || new.value.len() > longest {
            return SetOutcome::TooLarge;
        }
        if let Some((number, entry)) = self.find(key) {
            if entry.fits_in_place(new.value.len()) {
                self.overwrite_in_place(number, &entry, new);
                return SetOutcome::Stored { replaced: true };
            }
        } else {
            self.ensure_slot(key.hash, now);
        }
        if self.has_ranks() {
            self.evict_over_bound(key, new, now);
        }
        let footprint = Footprint::new(key.bytes.len(), new.value.len());
        let allocation = match self.allocate(&footprint, now, grant) {
            Ok(allocation) => allocation,
            Err(pages) => return self.ask_elsewhere(pages),
        };
        let entry = self.entry(allocation.head);
        entry.write(&allocation, key, new);
        self.number(&entry, allocation.pages);
        self.count(Counter::Sets);
        let old = self.find(key);
        match old {
            Some((number, old)) => self.replace(number, &old, &entry),
            None => self.insert(key, &allocation),
        }
        SetOutcome::Stored {
            replaced: old.is_some(),
        }
    }

    fn report_stored(&mut self, entry: &EntryRef) {
        let granules = entry.allocation().granules();
        self.report(entry.header().event(granules, None));
        self.name(entry, None);
    }

    /// Counts an overwrite, and says what the ledger is told once the old entry is gone.
    fn overwritten(&self, old: &EntryRef) -> EntryEvent {
        self.count(Counter::Overwritten);
        let granules = old.allocation().granules();
        old.header()
            .event(granules, Some(RemovalCause::Overwritten))
    }

    fn overwrite_in_place(&mut self, number: u32, entry: &EntryRef, new: &NewEntry) {
        let gone = self.overwritten(entry);
        entry.rewrite(new);
        if new.value.len() >= PAGE {
            self.number(entry, entry.allocation().pages);
        }
        self.count_hit(number);
        self.count(Counter::Sets);
        self.report(gone);
        self.report_stored(entry);
    }

    /// Gives the writing of a value of several pages its number: who has copied some of them sees by it that
    /// the rest is of another one.
    fn number(&mut self, entry: &EntryRef, pages: u32) {
        if pages > 0 {
            self.add_field(partition_word::WRITINGS, 1);
            entry.set_writing(self.field(partition_word::WRITINGS));
        }
    }

    fn replace(&mut self, number: u32, old: &EntryRef, new: &EntryRef) {
        let (before, after) = (old.allocation(), new.allocation());
        let slot = self.slot(number);
        new.set_slot(number);
        self.relink(slot.in_main(), before.head, after.head);
        self.resize_in_queue(slot.in_main(), before.granules(), after.granules());
        self.set_slot(
            number,
            IndexSlot::live(slot.tag(), slot.in_main(), slot.hits() + 1, after.head),
        );
        // The old entry is out of the index and the queue but its memory is still there to be read.
        let gone = self.overwritten(old);
        self.free_allocation(&before);
        self.report(gone);
        self.report_stored(new);
    }

    fn insert(&mut self, key: &Key, allocation: &Allocation) {
        // `ensure_slot` made room and evictions only make more; else the entry is evicted at once.
        let Some((number, remembered)) = self.choose_slot(key.hash) else {
            return self.free_allocation(allocation);
        };
        if remembered {
            self.count(Counter::GhostHits);
        }
        let main = self.is_filling() || remembered && self.main_gives_way();
        let tag = self.probe(key.hash).tag;
        self.entry(allocation.head).set_slot(number);
        self.set_new_slot(number, IndexSlot::live(tag, main, 0, allocation.head));
        self.enqueue(main, allocation.head, allocation.granules());
        self.report_stored(&self.entry(allocation.head));
    }

    /// `pages` is what the grant must cover in total.
    fn ask_elsewhere(&mut self, pages: u32) -> SetOutcome {
        let partitions = self.region().layout.partitions;
        let mut victim = self.region().next_victim(self.defers_to_tier());
        if victim == self.id() {
            victim = (victim + 1) & (partitions - 1);
        }
        SetOutcome::NeedPages { pages, victim }
    }

    /// Gives an entry a new deadline; false if the key has none. Whether the old one has passed is
    /// the caller's question (`peek`).
    pub fn touch(&mut self, key: &Key, deadline: i64) -> bool {
        let found = self.find(key);
        if let Some((slot, entry)) = found {
            let granules = entry.allocation().granules();
            let former = entry.header();
            entry.set_deadline(deadline);
            // The ledger sums deadlines, too.
            self.report(former.event(granules, Some(RemovalCause::Overwritten)));
            self.report(entry.header().event(granules, None));
            self.name(&entry, None);
            self.count_hit(slot);
        }
        found.is_some()
    }
}
