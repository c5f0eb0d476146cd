//! Makes room for an entry: frees pages and holes by evicting entries and by moving runs.
//!
//! The work of one write is bounded, and a partition gives up no more than necessary. This file takes pages only from a
//! partition whose lock the caller holds; `eviction.rs` chooses the entries.

use crate::arena::pool::Grant;
use crate::footprint::{Allocation, Footprint};
use crate::layout::{PAGE_GRANULES, partition_word};
use crate::partition::PartitionMut;
use crate::policy::compact::{HOLE_RATIO_FOR_PAGES, HOLE_RATIO_FOR_RUNS};
use crate::policy::share::Sparing;

/// The number of evictions between two attempts to empty a page by moving its runs; one more after a failed attempt in
/// `cut_runs_evicting`. The constant bounds the moves: one attempt moves at most 64 runs. A search for a hole, or a
/// `reclaim`, makes one attempt, and another for each page that it empties and each eight entries that it evicts.
const EVICTIONS_PER_MOVE: u32 = 8;
/// The number of times that a write reclaims pages from its own partition before it sends the caller to another
/// partition.
const LOCAL_ROUNDS: u32 = 8;

impl PartitionMut<'_> {
    /// Finds memory for an entry, and evicts in this partition if necessary. Returns the number of needed pages as an
    /// error if this partition has no more memory to give.
    pub(crate) fn allocate(
        &mut self,
        footprint: &Footprint,
        now: i64,
        grant: &mut Grant,
    ) -> Result<Allocation, u32> {
        self.reserve_pages_evicting(footprint, now, grant)?;
        let mut allocation = self.cut_runs_evicting(footprint, now, grant)?;
        for _ in 0..footprint.pages {
            match self.add_value_page(grant, allocation.first_page) {
                Some(page) => allocation.first_page = page,
                None => {
                    self.free_allocation(&allocation);
                    return Err(footprint.pages + 1);
                }
            }
            allocation.pages += 1;
        }
        Ok(allocation)
    }

    /// Reserves all pages of a large value before any run is cut. Returns the number of needed pages as an error if it
    /// cannot reserve them all.
    fn reserve_pages_evicting(
        &mut self,
        footprint: &Footprint,
        now: i64,
        grant: &mut Grant,
    ) -> Result<(), u32> {
        if footprint.pages == 0 {
            return Ok(());
        }
        let for_runs =
            u32::from(self.longest_hole() < footprint.one_run_granules().min(PAGE_GRANULES));
        let wanted = footprint.pages + for_runs;
        for _ in 0..LOCAL_ROUNDS {
            if grant.fill(wanted) {
                return Ok(());
            }
            if self.region().next_victim(self.defers_to_tier()) != self.id() {
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

    fn cut_runs_evicting(
        &mut self,
        footprint: &Footprint,
        now: i64,
        grant: &mut Grant,
    ) -> Result<Allocation, u32> {
        let mut until_move = 0u32;
        // Each round evicts an entry or empties a page. If it can do neither, the partition has no more memory to give.
        let bound = self.entries() * 2 + 16;
        for _ in 0..bound {
            if let Some(allocation) = self.cut_runs(footprint, grant) {
                return Ok(allocation);
            }
            if self.holds_less_than_its_share() {
                break;
            }
            let moved =
                until_move == 0 && self.is_sparse(HOLE_RATIO_FOR_RUNS) && self.vacate_page();
            let mut sparing = Sparing::of_visit(0, grant.spares());
            if !moved && !self.evict_one(now, &mut sparing) {
                break;
            }
            until_move = until_move.checked_sub(1).unwrap_or(EVICTIONS_PER_MOVE);
        }
        // Request two pages more, because the head and the tail may each need one. With a request for one more page,
        // the caller could retry forever.
        Err(footprint.pages + 2)
    }

    /// Returns whether the partition holds less than seven eighths of its share of the pages. If it does, the write
    /// takes pages from other partitions before it evicts entries here.
    fn holds_less_than_its_share(&self) -> bool {
        let layout = &self.region().layout;
        let held = self.field(partition_word::RUN_PAGES) + self.field(partition_word::VALUE_PAGES);
        held * 8 < u64::from(layout.pages / layout.partitions) * 7 && layout.partitions > 1
    }

    /// Evicts entries here until `grant` covers `pages`, or until no more can be evicted. Returns the number of pages
    /// that the grant covers. The caller holds only the lock of this partition, and the write may be to this partition
    /// or to another. In a partition with few entries, `reclaim` considers only one entry and leaves the rest to other
    /// partitions. Without this limit, the partition would lose entries in use while other partitions keep unused ones.
    pub fn reclaim(&mut self, pages: u32, now: i64, grant: &mut Grant) -> u32 {
        let bound = self.entries() + self.field(partition_word::RUN_PAGES) + 1;
        let mut until_move = 0;
        grant.visit();
        let mut sparing = Sparing::of_visit(pages, grant.spares());
        for _ in 0..bound {
            if grant.fill(pages) {
                break;
            }
            if until_move == 0 && self.is_sparse(HOLE_RATIO_FOR_PAGES) {
                if self.vacate_page() {
                    continue;
                }
                until_move = EVICTIONS_PER_MOVE;
            }
            until_move = until_move.saturating_sub(1);
            if self.defers_to_tier() && grant.take_single_turn() {
                self.judge_one(now, &mut sparing);
                break;
            }
            if !self.evict_one(now, &mut sparing) {
                break;
            }
        }
        grant.fill(pages);
        grant.pages()
    }
}
