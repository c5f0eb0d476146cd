//! Room for an entry: pages and holes, made by evicting and by moving runs.
//!
//! What it is not: it does not take pages from partitions whose lock the caller does not hold, and it does not
//! say who goes (`eviction.rs`). The rule it guards: bounded work, and no partition gives more than it must.

use crate::arena::pool::Grant;
use crate::footprint::{Place, Shape};
use crate::layout::{PAGE_GRANULES, partition_word};
use crate::partition::PartitionMut;

/// Evictions between two attempts to empty a page by moving its runs. So each search for a hole, and each
/// `reclaim`, moves at most 64 runs, and 64 more for each page it empties and for each eight entries it evicts.
const EVICTIONS_BEFORE_MOVING: u32 = 8;
/// One granule in so many is a hole: then a page is emptied for others; and for a run that finds no hole, since
/// the holes are of the wrong sizes then.
const SPARSE_FOR_PAGES: u64 = 8;
const SPARSE_FOR_RUNS: u64 = 32;
/// Victims tried in one round before the caller is asked to go elsewhere.
const OWN_TURNS: u32 = 8;

impl PartitionMut<'_> {
    /// Finds memory for an entry, evicting here; `Err(pages)`: this partition has nothing more to give.
    pub(crate) fn allocate(
        &mut self,
        shape: &Shape,
        now: i64,
        grant: &mut Grant,
    ) -> Result<Place, u32> {
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
        let held = self.field(partition_word::RUN_PAGES) + self.field(partition_word::VALUE_PAGES);
        held * 8 < u64::from(layout.pages / layout.partitions) * 7 && layout.partitions > 1
    }

    /// Evicts here until `grant` covers `pages`, or there is nothing left; gives what the grant covers.
    /// For another partition's write: the caller holds only this partition's lock. With few entries here it
    /// judges one, and the writer asks another partition for the next: else whoever is asked would lose
    /// entries that are used, while others keep some that are not.
    pub fn reclaim(&mut self, pages: u32, now: i64, grant: &mut Grant) -> u32 {
        let bound = self.entries() + self.field(partition_word::RUN_PAGES) + 1;
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
