//! Storing an entry: find memory, evicting as needed, then write, then name it in the index.
//!
//! What it is not: it does not take pages from partitions whose lock the caller does not hold; it says
//! which partition to ask (`NeedPages`).
//! The rule it guards: memory first, index last. A key's old entry stays until the new one is written, and
//! a closure of the caller runs only between steps that leave the structure valid.

use crate::arena::{NO_PAGE, Run};
use crate::entry::{EntryRef, Key, MAX_KEY, Place, Record, Shape};
use crate::index::Slot;
use crate::layout::{GRANULE, PAGE_GRANULES};
use crate::partition::{PartitionMut, field};
use crate::pool::Grant;
use crate::stats::{Change, Counter, Why};

/// How often a caller should answer `NeedPages` before it takes its write as evicted at once.
pub const SET_ROUNDS: usize = 96;
/// Evictions between two attempts to empty a page by moving its runs. So each search for a hole, and each
/// `reclaim`, moves at most 64 runs, and 64 more for each page it empties and for each eight entries it evicts.
const EVICTIONS_BEFORE_MOVING: u32 = 8;
/// One granule in so many is a hole: then a page is emptied for others; and for a run that finds no hole, since
/// the holes are of the wrong sizes then.
const SPARSE_FOR_PAGES: u64 = 8;
const SPARSE_FOR_RUNS: u64 = 32;
/// Runs below this size are not worth two accesses.
const LEAST_SPLIT: u32 = 8;
/// A hole of this size takes the head of any entry. So a page loses at most a tenth to holes, whatever the
/// size of the values.
const LEAST_HEAD: u32 = 4;
/// Victims tried in one round before the caller is asked to go elsewhere.
const OWN_TURNS: u32 = 8;

/// The answer of [`PartitionMut::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    Stored {
        replaced: bool,
    },
    /// Release the lock, lock `victim`, `reclaim(pages)` there into the same grant, and come back.
    NeedPages {
        pages: u32,
        victim: u32,
    },
    /// Longer than `Layout::max_value`, or a key that is empty or above `MAX_KEY`. Nothing has changed:
    /// an old entry of the key is still there.
    TooLarge,
}

impl PartitionMut<'_> {
    /// Inserts or overwrites. An overwrite counts as a hit and keeps the entry's place in its queue.
    pub fn set(&mut self, key: &Key, record: &Record, now: i64, grant: &mut Grant) -> Set {
        let longest = self.region().layout.max_value(key.bytes.len());
        if key.bytes.is_empty() || key.bytes.len() > MAX_KEY || record.value.len() > longest {
            return Set::TooLarge;
        }
        if let Some((number, entry)) = self.find(key) {
            if entry.fits_in_place(record.value.len()) {
                self.overwrite_in_place(number, &entry, record);
                return Set::Stored { replaced: true };
            }
        } else {
            self.ensure_slot(key.hash);
        }
        let shape = Shape::new(key.bytes.len(), record.value.len());
        let place = match self.allocate(&shape, now, grant) {
            Ok(place) => place,
            Err(pages) => return self.ask_elsewhere(pages),
        };
        let entry = self.entry(place.head);
        entry.write(&place, key, record);
        self.count(Counter::Sets);
        let old = self.find(key);
        match old {
            Some((number, old)) => self.replace(number, &old, &entry),
            None => self.insert(key, &place),
        }
        Set::Stored {
            replaced: old.is_some(),
        }
    }

    fn report_stored(&mut self, entry: &EntryRef) {
        let header = entry.header();
        let bytes = entry.place().granules() * GRANULE as u64;
        let (cache, version) = (header.cache, header.version);
        self.report(Change {
            cache,
            version,
            bytes,
            why: None,
        });
    }

    fn overwritten(&self, old: &EntryRef) -> Change {
        let header = old.header();
        let bytes = old.place().granules() * GRANULE as u64;
        self.count(Counter::Overwritten);
        Change {
            cache: header.cache,
            version: header.version,
            bytes,
            why: Some(Why::Overwritten),
        }
    }

    fn overwrite_in_place(&mut self, number: u32, entry: &EntryRef, record: &Record) {
        let gone = self.overwritten(entry);
        entry.rewrite(record);
        self.count_hit(number);
        self.count(Counter::Sets);
        self.report(gone);
        self.report_stored(entry);
    }

    fn replace(&mut self, number: u32, old: &EntryRef, new: &EntryRef) {
        let (before, after) = (old.place(), new.place());
        let slot = self.slot(number);
        new.set_slot(number);
        self.relink(slot.in_main(), before.head, after.head);
        self.resize_in_queue(slot.in_main(), before.granules(), after.granules());
        self.set_slot(
            number,
            Slot::live(slot.tag(), slot.in_main(), slot.hits() + 1, after.head),
        );
        // The old entry is out of the index and the queue but its memory is still there to be read.
        let gone = self.overwritten(old);
        self.free_place(&before);
        self.report(gone);
        self.report_stored(new);
    }

    fn insert(&mut self, key: &Key, place: &Place) {
        // `ensure_slot` made room and evictions only make more; else the entry is evicted at once.
        let Some((number, remembered)) = self.choose_slot(key.hash) else {
            return self.free_place(place);
        };
        if remembered {
            self.count(Counter::GhostHits);
        }
        let tag = self.aim(key.hash).tag;
        self.entry(place.head).set_slot(number);
        self.set_slot(number, Slot::live(tag, remembered, 0, place.head));
        self.enqueue(remembered, place.head, place.granules());
        self.report_stored(&self.entry(place.head));
    }

    /// Frees the memory of an entry that nothing names any more.
    pub(crate) fn free_place(&mut self, place: &Place) {
        self.sub_field(field::SHORT_SPLITS, is_short_split(place).into());
        if place.tail != 0 {
            self.free_run(place.tail, place.tail_len, Run::Tail);
        }
        self.free_value_pages(place.first_page, place.pages);
        self.free_run(place.head, place.head_len, Run::Head);
    }

    /// Finds memory for an entry, evicting here; `Err(pages)`: this partition has nothing more to give.
    fn allocate(&mut self, shape: &Shape, now: i64, grant: &mut Grant) -> Result<Place, u32> {
        self.secure_pages(shape, now, grant)?;
        let mut place = self.cut_runs_evicting(shape, now, grant)?;
        for _ in 0..shape.pages {
            match self.add_value_page(grant, place.first_page) {
                Some(page) => place.first_page = page,
                None => {
                    self.free_place(&place);
                    return Err(shape.pages + 1);
                }
            }
            place.pages += 1;
        }
        Ok(place)
    }

    /// Reserves the pages of a large value before anything is cut: all or nothing.
    fn secure_pages(&mut self, shape: &Shape, now: i64, grant: &mut Grant) -> Result<(), u32> {
        if shape.pages == 0 {
            return Ok(());
        }
        let for_runs = u32::from(self.longest_hole() < shape.single().min(PAGE_GRANULES));
        let wanted = shape.pages + for_runs;
        for _ in 0..OWN_TURNS {
            if grant.fill(wanted) {
                return Ok(());
            }
            if self.region().next_victim(self.has_few()) != self.id() {
                break;
            }
            self.reclaim(wanted, now, grant);
        }
        if grant.fill(wanted) {
            Ok(())
        } else {
            Err(wanted)
        }
    }

    /// `pages` is what the grant must cover in total.
    fn ask_elsewhere(&mut self, pages: u32) -> Set {
        let partitions = self.region().layout.partitions;
        let mut victim = self.region().next_victim(self.has_few());
        if victim == self.id() {
            victim = (victim + 1) & (partitions - 1);
        }
        Set::NeedPages { pages, victim }
    }

    fn cut_runs_evicting(
        &mut self,
        shape: &Shape,
        now: i64,
        grant: &mut Grant,
    ) -> Result<Place, u32> {
        let mut wait = 0u32;
        // An eviction or a vacated page each turn: when there is neither, nothing is left here.
        let bound = self.entries() * 2 + 16;
        for _ in 0..bound {
            if let Some(place) = self.cut_runs(shape, grant) {
                return Ok(place);
            }
            if self.is_poor() {
                break;
            }
            let moved = wait == 0 && self.is_sparse(SPARSE_FOR_RUNS) && self.vacate_page();
            if !moved && !self.evict_one(now) {
                break;
            }
            wait = wait.checked_sub(1).unwrap_or(EVICTIONS_BEFORE_MOVING);
        }
        // Head and tail may need a page each; asking for one would go round in circles.
        Err(shape.pages + 2)
    }

    /// A partition with less than seven eighths of its share of pages takes from others before it evicts.
    fn is_poor(&self) -> bool {
        let layout = &self.region().layout;
        let held = self.field(field::RUN_PAGES) + self.field(field::VALUE_PAGES);
        held * 8 < u64::from(layout.pages / layout.partitions) * 7 && layout.partitions > 1
    }

    /// One run in a hole; or head and tail in two holes; or a new page. Takes all or nothing.
    fn cut_runs(&mut self, shape: &Shape, grant: &mut Grant) -> Option<Place> {
        let single = shape.single();
        if let Some(head) = self.cut_run(single, Run::Head) {
            return Some(one_run(head, single));
        }
        let hole = self.longest_hole();
        if self.is_worth_splitting(shape, hole)
            && let Some(place) = self.cut_two(shape, hole, grant)
        {
            return Some(place);
        }
        if !self.take_run_page(shape, grant) {
            return None;
        }
        if single <= PAGE_GRANULES {
            return self
                .cut_run(single, Run::Head)
                .map(|head| one_run(head, single));
        }
        self.cut_two(shape, PAGE_GRANULES, grant)
    }

    /// Takes a page for runs, but none that is reserved for the value's own pages.
    fn take_run_page(&mut self, shape: &Shape, grant: &mut Grant) -> bool {
        grant.fill(shape.pages + 1) && self.add_run_page(grant)
    }

    /// A split entry leaves two holes when it goes, into which the next one is split: what a split costs, a
    /// partition pays for good. So a short entry is split if that costs nothing, or while such entries are
    /// fewer than pages: values of one size leave a hole a page, whatever sizes were there before.
    fn is_worth_splitting(&self, shape: &Shape, hole: u32) -> bool {
        let single = shape.single();
        if single < LEAST_SPLIT || hole < shape.least_head().max(LEAST_HEAD.min(single / 4)) {
            return false;
        }
        single >= 2 * LEAST_SPLIT
            || hole + shape.tail(hole) <= single
            || self.field(field::SHORT_SPLITS) < self.field(field::RUN_PAGES)
    }

    /// A head that fills the longest hole, and a tail elsewhere, in a new page if need be.
    fn cut_two(&mut self, shape: &Shape, head_len: u32, grant: &mut Grant) -> Option<Place> {
        let tail_len = shape.tail(head_len);
        if !(1..=PAGE_GRANULES).contains(&tail_len) {
            return None;
        }
        let head = self.cut_run(head_len, Run::Head)?;
        let mut tail = self.cut_run(tail_len, Run::Tail);
        if tail.is_none() && self.take_run_page(shape, grant) {
            tail = self.cut_run(tail_len, Run::Tail);
        }
        match tail {
            Some(tail) => {
                let place = Place {
                    tail,
                    tail_len,
                    ..one_run(head, head_len)
                };
                self.add_field(field::SHORT_SPLITS, is_short_split(&place).into());
                Some(place)
            }
            None => {
                self.free_run(head, head_len, Run::Head);
                None
            }
        }
    }

    /// Evicts here until `grant` covers `pages`, or there is nothing left; gives what the grant covers.
    /// For another partition's write: the caller holds only this partition's lock. With few entries here it
    /// judges one, and the writer asks another partition for the next: else whoever is asked would lose
    /// entries that are used, while others keep some that are not.
    pub fn reclaim(&mut self, pages: u32, now: i64, grant: &mut Grant) -> u32 {
        let bound = self.entries() + self.field(field::RUN_PAGES) + 1;
        let mut wait = 0;
        for _ in 0..bound {
            if grant.fill(pages) {
                break;
            }
            if wait == 0 && self.is_sparse(SPARSE_FOR_PAGES) {
                if self.vacate_page() {
                    continue;
                }
                wait = EVICTIONS_BEFORE_MOVING;
            }
            wait = wait.saturating_sub(1);
            if self.has_few() && grant.take_turn() {
                self.judge_one(now);
                break;
            }
            if !self.evict_one(now) {
                break;
            }
        }
        grant.fill(pages);
        grant.pages()
    }
}

/// In two runs that are so short that what the second costs is worth counting.
pub(crate) fn is_short_split(place: &Place) -> bool {
    place.tail != 0 && place.head_len + place.tail_len <= 2 * LEAST_SPLIT
}

fn one_run(head: u32, head_len: u32) -> Place {
    Place {
        head,
        head_len,
        tail: 0,
        tail_len: 0,
        first_page: NO_PAGE,
        pages: 0,
    }
}
