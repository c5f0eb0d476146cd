//! Compaction: empties a sparse page by moving its runs into holes elsewhere.
//!
//! What it is not: a background activity; it runs inside a write that needs a page.
//! The rule it guards: scattered survivors never pin memory. Each call frees one page, because a run that
//! finds no hole is evicted instead of moved.

use crate::arena::{NO_PAGE, Run, longest};
use crate::index::Slot;
use crate::layout::{GRANULE, PAGE_GRANULES};
use crate::partition::{PartitionMut, field};
use crate::stats::{Counter, Why};

impl PartitionMut<'_> {
    /// True if holes make up a page and more than an eighth of the pages that hold runs.
    pub(crate) fn is_sparse(&self) -> bool {
        let pages = self.field(field::RUN_PAGES);
        let free =
            (pages * u64::from(PAGE_GRANULES)).saturating_sub(self.field(field::RUN_GRANULES));
        free > u64::from(PAGE_GRANULES) + pages * u64::from(PAGE_GRANULES) / 8
    }

    /// Empties the page with the longest hole, which goes to the pool. False if no page has a hole.
    pub(crate) fn vacate_page(&mut self) -> bool {
        let hole = self.longest_hole();
        if hole == 0 {
            return false;
        }
        let page = self.hole_list(hole);
        self.unlist(page, hole);
        self.vacating = page;
        self.move_runs(page, Run::Head);
        self.move_runs(page, Run::Tail);
        self.vacating = NO_PAGE;
        match self.region().used(page) {
            0 => self.give_run_page(page),
            used => {
                self.list(page, longest(!used));
                self.evict_page(page);
            }
        }
        true
    }

    fn move_runs(&mut self, page: u32, run: Run) {
        let mut starts = self.region().starts(page, run);
        while starts != 0 {
            let location = self.region().location(page, starts.trailing_zeros());
            starts &= starts - 1;
            let moved = match run {
                Run::Head => self.move_head(location),
                Run::Tail => self.move_tail(self.tail_owner(location)),
            };
            if moved.is_some() {
                self.count(Counter::Moved);
            }
        }
    }

    fn tail_owner(&self, tail: u32) -> u32 {
        self.region().load(tail as usize * GRANULE) as u32
    }

    /// Evicts the owners of the runs that could not be moved. The page may be another's once its last run
    /// is gone, so runs are counted, not looked for.
    fn evict_page(&mut self, page: u32) {
        let runs = |run| self.region().starts(page, run).count_ones();
        let mut left = runs(Run::Head) + runs(Run::Tail);
        while left > 0 {
            let heads = self.region().starts(page, Run::Head);
            let tails = self.region().starts(page, Run::Tail);
            let first = self
                .region()
                .location(page, (heads | tails).trailing_zeros().min(63));
            let owner = match heads & heads.wrapping_neg()
                == (heads | tails) & (heads | tails).wrapping_neg()
            {
                true => first,
                false => self.tail_owner(first),
            };
            let place = self.entry(owner).place();
            let here =
                |location: u32| u32::from(location != 0 && self.region().page_of(location) == page);
            left = left.saturating_sub((here(place.head) + here(place.tail)).max(1));
            self.drop_entry(owner, Why::Evicted);
        }
    }

    fn move_head(&mut self, old: u32) -> Option<()> {
        let place = self.entry(old).place();
        let new = self.cut_run(place.head_len, Run::Head)?;
        self.copy_run(old, new, place.head_len);
        let number = self.entry(new).slot();
        let slot = self.slot(number);
        self.relink(slot.in_main(), old, new);
        self.set_slot(
            number,
            Slot::live(slot.tag(), slot.in_main(), slot.hits(), new),
        );
        if place.tail != 0 {
            self.entry(new).adopt_tail(place.tail, place.tail_len);
        }
        self.free_run(old, place.head_len, Run::Head);
        Some(())
    }

    fn move_tail(&mut self, owner: u32) -> Option<()> {
        let place = self.entry(owner).place();
        let new = self.cut_run(place.tail_len, Run::Tail)?;
        self.copy_run(place.tail, new, place.tail_len);
        self.entry(owner).set_tail(new);
        self.free_run(place.tail, place.tail_len, Run::Tail);
        Some(())
    }

    fn copy_run(&mut self, from: u32, to: u32, granules: u32) {
        let (from, to) = (from as usize * GRANULE, to as usize * GRANULE);
        self.region()
            .copy_within(from, to, granules as usize * GRANULE);
    }
}
