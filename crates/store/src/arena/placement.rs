//! Memory for a whole entry: one run in a hole, head and tail in two holes, or a new page.
//!
//! What it is not: it evicts nobody and takes no page that is not in the pool (`policy`, `write.rs`).
//! The rule it guards: all or nothing, and what a split costs is paid by long entries.

use super::page_table::Run;
use super::pool::Grant;
use crate::footprint::{Place, Shape};
use crate::layout::{NO_PAGE, PAGE_GRANULES, partition_word};
use crate::partition::PartitionMut;

/// Runs below this size are not worth two accesses.
const LEAST_SPLIT: u32 = 8;
/// A hole of this size takes the head of any entry. So a page loses at most a tenth to holes, whatever the
/// size of the values.
const LEAST_HEAD: u32 = 4;

impl PartitionMut<'_> {
    /// One run in a hole; or head and tail in two holes; or a new page. Takes all or nothing.
    pub(crate) fn cut_runs(&mut self, shape: &Shape, grant: &mut Grant) -> Option<Place> {
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
            || self.field(partition_word::SHORT_SPLITS) < self.field(partition_word::RUN_PAGES)
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
                self.add_field(partition_word::SHORT_SPLITS, is_short_split(&place).into());
                Some(place)
            }
            None => {
                self.free_run(head, head_len, Run::Head);
                None
            }
        }
    }

    /// Frees the memory of an entry that nothing names any more.
    pub(crate) fn free_place(&mut self, place: &Place) {
        self.sub_field(partition_word::SHORT_SPLITS, is_short_split(place).into());
        if place.tail != 0 {
            self.free_run(place.tail, place.tail_len, Run::Tail);
        }
        self.free_value_pages(place.first_page, place.pages);
        self.free_run(place.head, place.head_len, Run::Head);
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
