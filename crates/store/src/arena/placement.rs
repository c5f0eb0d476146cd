//! Finds memory for a whole entry: one run in a hole, a head and a tail in two holes, or a new page.
//!
//! This file evicts no entry, and takes pages only from the pool (`policy` and `set.rs` evict, and take pages from
//! partitions). An entry gets all of its memory or none. It is split only if the memory that the split saves is worth
//! the second access.

use super::page_table::RunKind;
use super::pool::Grant;
use crate::footprint::{Allocation, Footprint};
use crate::layout::{NO_PAGE, PAGE_GRANULES, partition_word};
use crate::partition::PartitionMut;

/// The minimum size of a split entry in granules: for a shorter entry, the second access costs more than the unused
/// hole.
const MIN_SPLIT_GRANULES: u32 = 8;
/// The minimum size in granules of a hole that takes a head. A hole of this size can take the head of any entry with a
/// short key, so unused holes take at most a tenth of a page, for any size of value.
const MIN_HEAD_GRANULES: u32 = 4;

impl PartitionMut<'_> {
    /// Cuts one run in a hole, or a head and a tail in two holes, or a run in a new page. Takes all of the memory, or
    /// returns None and takes none.
    pub(crate) fn cut_runs(
        &mut self,
        footprint: &Footprint,
        grant: &mut Grant,
    ) -> Option<Allocation> {
        let single = footprint.one_run_granules();
        if let Some(head) = self.cut_run(single, RunKind::Head) {
            return Some(one_run(head, single));
        }
        let hole = self.longest_hole();
        if self.is_worth_splitting(footprint, hole)
            && let Some(allocation) = self.cut_two(footprint, hole, grant)
        {
            return Some(allocation);
        }
        if !self.take_run_page(footprint, grant) {
            return None;
        }
        if single <= PAGE_GRANULES {
            return self
                .cut_run(single, RunKind::Head)
                .map(|head| one_run(head, single));
        }
        self.cut_two(footprint, PAGE_GRANULES, grant)
    }

    /// Takes a new page for runs, in addition to the pages that are reserved for the value's own pages. Returns false
    /// if none is available.
    fn take_run_page(&mut self, footprint: &Footprint, grant: &mut Grant) -> bool {
        grant.fill(footprint.pages + 1) && self.add_run_page(grant)
    }

    /// Returns whether a split into this hole is worth its cost. When a split entry is removed it leaves two holes, and
    /// the next entry is split into them, so the partition pays for a split permanently. Therefore a short entry is
    /// split only if the split takes no more granules than one run, or while the partition has fewer short split
    /// entries than pages. Values of one size then leave one hole in each page, whatever the former sizes were.
    fn is_worth_splitting(&self, footprint: &Footprint, hole: u32) -> bool {
        let single = footprint.one_run_granules();
        if single < MIN_SPLIT_GRANULES
            || hole
                < footprint
                    .min_head_granules()
                    .max(MIN_HEAD_GRANULES.min(single / 4))
        {
            return false;
        }
        single >= 2 * MIN_SPLIT_GRANULES
            || hole + footprint.tail_granules(hole) <= single
            || self.field(partition_word::SHORT_SPLITS) < self.field(partition_word::RUN_PAGES)
    }

    /// Cuts a head that fills the longest hole, and a tail elsewhere, in a new page if necessary. Returns None, and
    /// takes no memory, if it cannot cut both.
    fn cut_two(
        &mut self,
        footprint: &Footprint,
        head_len: u32,
        grant: &mut Grant,
    ) -> Option<Allocation> {
        let tail_len = footprint.tail_granules(head_len);
        if !(1..=PAGE_GRANULES).contains(&tail_len) {
            return None;
        }
        let head = self.cut_run(head_len, RunKind::Head)?;
        let mut tail = self.cut_run(tail_len, RunKind::Tail);
        if tail.is_none() && self.take_run_page(footprint, grant) {
            tail = self.cut_run(tail_len, RunKind::Tail);
        }
        match tail {
            Some(tail) => {
                let allocation = Allocation {
                    tail,
                    tail_len,
                    ..one_run(head, head_len)
                };
                self.add_field(
                    partition_word::SHORT_SPLITS,
                    is_short_split(&allocation).into(),
                );
                Some(allocation)
            }
            None => {
                self.free_run(head, head_len, RunKind::Head);
                None
            }
        }
    }

    /// Frees the memory of an entry. No index slot refers to the entry any more.
    pub(crate) fn free_allocation(&mut self, allocation: &Allocation) {
        self.sub_field(
            partition_word::SHORT_SPLITS,
            is_short_split(allocation).into(),
        );
        if allocation.tail != 0 {
            self.free_run(allocation.tail, allocation.tail_len, RunKind::Tail);
        }
        self.free_value_pages(allocation.first_page, allocation.pages);
        self.free_run(allocation.head, allocation.head_len, RunKind::Head);
    }
}

/// Returns whether an entry is a short entry in two runs, which `is_worth_splitting` counts.
pub(crate) fn is_short_split(allocation: &Allocation) -> bool {
    allocation.tail != 0 && allocation.head_len + allocation.tail_len <= 2 * MIN_SPLIT_GRANULES
}

fn one_run(head: u32, head_len: u32) -> Allocation {
    Allocation {
        head,
        head_len,
        tail: 0,
        tail_len: 0,
        first_page: NO_PAGE,
        pages: 0,
    }
}
