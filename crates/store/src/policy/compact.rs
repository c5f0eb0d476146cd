//! Compaction: empties a sparse page by moving its runs into holes of other pages.
//!
//! Compaction removes no entry, so the policy alone chooses the entry to evict, whatever hole the eviction leaves. A
//! call empties at most one page: a write that needs a page calls once, and an idle worker calls repeatedly, each time
//! under a new lock.

use crate::arena::bitmap::longest_run;
use crate::arena::page_table::RunKind;
use crate::entry_events::Counter;
use crate::index::IndexSlot;
use crate::layout::{GRANULE, NO_PAGE, PAGE_GRANULES, partition_word};
use crate::partition::{PartitionMut, PartitionRef};

/// A partition is sparse if one granule in this many is a hole. With the first ratio, compaction empties a page for the
/// pool. The second ratio applies if a run finds no hole, because the holes have the wrong sizes.
pub(crate) const HOLE_RATIO_FOR_PAGES: u64 = 8;
pub(crate) const HOLE_RATIO_FOR_RUNS: u64 = 32;

impl PartitionRef<'_> {
    /// Returns whether the holes add up to more than one page, plus this share (one in `one_in`) of the pages with
    /// runs.
    pub(crate) fn is_sparse(&self, one_in: u64) -> bool {
        let granules = self.field(partition_word::RUN_PAGES) * u64::from(PAGE_GRANULES);
        let free = granules.saturating_sub(self.field(partition_word::RUN_GRANULES));
        free > u64::from(PAGE_GRANULES) + granules / one_in
    }

    /// Returns whether [`PartitionMut::compact`] would try to empty a page.
    pub fn has_holes(&self) -> bool {
        self.is_sparse(HOLE_RATIO_FOR_PAGES)
    }
}

impl PartitionMut<'_> {
    /// Empties one page for the pool, if the holes exceed one page plus an eighth of the pages with runs. Moves the
    /// page's runs, at most 64 and together at most 4 kB, into holes elsewhere. Returns true if more may be
    /// possible.
    pub fn compact(&mut self) -> bool {
        self.has_holes() && self.vacate_page()
    }

    /// Moves as many runs as possible out of the page with the longest hole. Returns true if this emptied the page,
    /// which is then in the pool. Otherwise the page keeps the runs that fit nowhere else, and the policy chooses the
    /// entry to evict.
    pub(crate) fn vacate_page(&mut self) -> bool {
        let hole = self.longest_hole();
        if hole == 0 {
            return false;
        }
        let page = self.hole_list(hole);
        self.unlist_page(page, hole);
        self.vacating = page;
        self.move_runs(page, RunKind::Head);
        self.move_runs(page, RunKind::Tail);
        self.vacating = NO_PAGE;
        let used = self.region().used(page);
        match used {
            0 => self.give_run_page(page),
            _ => self.list_page(page, longest_run(!used)),
        }
        used == 0
    }

    fn move_runs(&mut self, page: u32, run: RunKind) {
        let mut starts = self.region().starts(page, run);
        while starts != 0 {
            let location = self.region().location(page, starts.trailing_zeros());
            starts &= starts - 1;
            let moved = match run {
                RunKind::Head => self.move_head(location),
                RunKind::Tail => self.move_tail(self.tail_owner(location)),
            };
            if moved.is_some() {
                self.count(Counter::Moved);
            }
        }
    }

    fn tail_owner(&self, tail: u32) -> u32 {
        self.region().load(tail as usize * GRANULE) as u32
    }

    fn move_head(&mut self, old: u32) -> Option<()> {
        let allocation = self.entry(old).allocation();
        let new = self.cut_run(allocation.head_len, RunKind::Head)?;
        self.copy_run(old, new, allocation.head_len);
        let number = self.entry(new).slot();
        let slot = self.slot(number);
        self.relink(slot.in_main(), old, new);
        self.set_slot(
            number,
            IndexSlot::live(slot.tag(), slot.in_main(), slot.hits(), new),
        );
        if allocation.tail != 0 {
            self.entry(new)
                .link_tail(allocation.tail, allocation.tail_len);
        }
        self.free_run(old, allocation.head_len, RunKind::Head);
        Some(())
    }

    fn move_tail(&mut self, owner: u32) -> Option<()> {
        let allocation = self.entry(owner).allocation();
        let new = self.cut_run(allocation.tail_len, RunKind::Tail)?;
        self.copy_run(allocation.tail, new, allocation.tail_len);
        self.entry(owner).set_tail(new);
        self.free_run(allocation.tail, allocation.tail_len, RunKind::Tail);
        Some(())
    }

    fn copy_run(&mut self, from: u32, to: u32, granules: u32) {
        let (from, to) = (from as usize * GRANULE, to as usize * GRANULE);
        self.region()
            .copy_within(from, to, granules as usize * GRANULE);
    }
}
