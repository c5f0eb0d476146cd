//! Stores an entry: finds memory, evicting entries if necessary, writes the entry, and then links it into the index.
//!
//! The order matters: memory first, index last. A value that fits is overwritten in place; otherwise the old entry of
//! the key stays until the new entry is written. A closure of the caller runs only between steps that leave the
//! structure valid. A write takes no pages from a partition whose lock the caller does not hold; it returns the
//! partition to lock instead (`NeedPages`).

use crate::arena::pool::Grant;
use crate::entry::{EntryRef, Key, MAX_KEY, NewEntry};
use crate::entry_events::{Counter, EntryEvent, RemovalCause};
use crate::footprint::{Allocation, Footprint};
use crate::index::IndexSlot;
use crate::layout::{PAGE, partition_word};
use crate::partition::PartitionMut;

/// The maximum number of attempts at one `set` that return `NeedPages`. After that, the caller gives up and treats the
/// entry as evicted.
pub const SET_ROUNDS: usize = 96;

/// The result of [`PartitionMut::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// The entry is stored.
    Stored {
        /// Whether the entry replaced another entry of this key.
        replaced: bool,
    },
    /// Release the lock, lock `victim`, call `reclaim(pages)` there with the same grant, and try again.
    NeedPages {
        /// The pages that the grant must cover in total.
        pages: u32,
        /// The partition that should give the pages.
        victim: u32,
    },
    /// The value is longer than `Layout::max_value`, or the key is empty or longer than `MAX_KEY`.
    /// Nothing changed: an old entry of the key still exists.
    TooLarge,
}

impl PartitionMut<'_> {
    /// Inserts or overwrites an entry. `now` is in microseconds on the caller's clock; an eviction uses it to find
    /// expired entries. An overwrite counts as a hit and keeps the entry's position in its queue.
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

    /// Counts an overwrite, and returns the event to report after the removal of the old entry.
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

    /// Gives a write of a value with whole pages a new sequence number. A reader that has copied some of the pages then
    /// notices that the remaining pages belong to a different write.
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
        // The old entry is out of the index and the queue, but its memory can still be read.
        let gone = self.overwritten(old);
        self.free_allocation(&before);
        self.report(gone);
        self.report_stored(new);
    }

    fn insert(&mut self, key: &Key, allocation: &Allocation) {
        // `ensure_slot` has made room, and evictions only make more. If the key finds no slot after all, the entry
        // counts as evicted at once.
        let Some((number, remembered)) = self.choose_slot(key.hash) else {
            return self.free_allocation(allocation);
        };
        if remembered {
            self.count(Counter::GhostHits);
        }
        let main = self.is_filling() || self.fills_index() || remembered && self.main_gives_way();
        let tag = self.probe(key.hash).tag;
        self.entry(allocation.head).set_slot(number);
        self.set_new_slot(number, IndexSlot::live(tag, main, 0, allocation.head));
        self.enqueue(main, allocation.head, allocation.granules());
        self.report_stored(&self.entry(allocation.head));
    }

    /// Returns the request for this many pages from another partition.
    fn ask_elsewhere(&mut self, pages: u32) -> SetOutcome {
        let partitions = self.region().layout.partitions;
        let mut victim = self.region().next_victim(self.defers_to_tier());
        if victim == self.id() {
            victim = (victim + 1) & (partitions - 1);
        }
        SetOutcome::NeedPages { pages, victim }
    }

    /// Gives an entry a new deadline; returns false if the key has no entry. Does not check the old deadline; the
    /// caller can, with `peek`.
    pub fn touch(&mut self, key: &Key, deadline: i64) -> bool {
        let found = self.find(key);
        if let Some((slot, entry)) = found {
            let granules = entry.allocation().granules();
            let former = entry.header();
            entry.set_deadline(deadline);
            // Report the entry as replaced, because the ledger also sums deadlines.
            self.report(former.event(granules, Some(RemovalCause::Overwritten)));
            self.report(entry.header().event(granules, None));
            self.name(&entry, None);
            self.count_hit(slot);
        }
        found.is_some()
    }
}
