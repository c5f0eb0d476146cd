//! Cuts a partition's pages into runs of granules, and takes whole pages for large values.
//!
//! Each granule belongs to at most one run, and every page that becomes free can serve any value, so no history of
//! value sizes can waste memory permanently. This file does not choose the entry to evict, the split of an entry
//! (`placement.rs`), or the time when an entry moves (`compact.rs`).
//!
//! A page with runs is in one of 64 lists of its partition, by the length of its longest hole. A word with one bit
//! for each list finds the list with the smallest sufficient hole in one instruction.

use super::bitmap::{best_hole, longest_run, mask};
use super::page_table::RunKind;
use super::pool::Grant;
use crate::layout::{NO_PAGE, PAGE_GRANULES, page_word, partition_word};
use crate::partition::{PartitionMut, PartitionRef};

/// Returns the offset of the word that holds the first page whose longest hole has this length, at least 1.
fn hole_head(length: u32) -> usize {
    partition_word::HOLE_HEADS + 8 * (length as usize - 1)
}

impl PartitionRef<'_> {
    /// Returns the first page whose longest hole has this length.
    pub(crate) fn hole_list(&self, length: u32) -> u32 {
        self.field(hole_head(length)) as u32
    }
}

impl PartitionMut<'_> {
    /// Cuts `n` granules from a page with the smallest sufficient hole; never takes a new page. Returns None if no hole
    /// suffices.
    pub(crate) fn cut_run(&mut self, n: u32, run: RunKind) -> Option<u32> {
        if n == 0 || n > PAGE_GRANULES {
            return None;
        }
        let fitting = self.field(partition_word::HOLE_LISTS) & u64::MAX << (n - 1);
        if fitting == 0 {
            return None;
        }
        let page = self.hole_list(fitting.trailing_zeros() + 1);
        let granule = best_hole(!self.region().used(page), n)?;
        self.occupy(page, granule, n, run);
        Some(self.region().location(page, granule))
    }

    /// Returns the length of the longest hole in any page of this partition.
    pub(crate) fn longest_hole(&self) -> u32 {
        64 - self.field(partition_word::HOLE_LISTS).leading_zeros()
    }

    fn occupy(&mut self, page: u32, granule: u32, n: u32, run: RunKind) {
        let used = self.region().used(page);
        self.set_used(page, used, used | mask(granule, n));
        self.region().flip_start(page, run, granule);
        self.add_field(partition_word::RUN_GRANULES, u64::from(n));
    }

    /// Frees a run; a page without runs returns to the pool.
    pub(crate) fn free_run(&mut self, location: u32, n: u32, run: RunKind) {
        let page = self.region().page_of(location);
        let granule = self.region().granule_of(location);
        let used = self.region().used(page);
        self.region().flip_start(page, run, granule);
        self.sub_field(partition_word::RUN_GRANULES, u64::from(n));
        self.set_used(page, used, used & !mask(granule, n));
        if self.region().used(page) == 0 && page != self.vacating {
            self.drop_run_page(page);
        }
    }

    /// Changes a page's bitmap and moves the page to the list of its longest hole.
    fn set_used(&mut self, page: u32, before: u64, after: u64) {
        let (old, new) = (longest_run(!before), longest_run(!after));
        let relist = old != new && page != self.vacating;
        if relist {
            self.unlist_page(page, old);
        }
        self.region()
            .store(self.region().page_meta(page, page_word::USED), after);
        if relist {
            self.list_page(page, new);
        }
    }

    /// Takes a page from the pool for runs, and adds it to the list for the longest hole. Returns false if the pool has
    /// none.
    pub(crate) fn add_run_page(&mut self, grant: &mut Grant) -> bool {
        let Some(page) = grant.claim() else {
            return false;
        };
        for word in [page_word::USED, page_word::HEADS, page_word::TAILS] {
            self.region().store(self.region().page_meta(page, word), 0);
        }
        self.add_field(partition_word::RUN_PAGES, 1);
        self.list_page(page, PAGE_GRANULES);
        true
    }

    fn drop_run_page(&mut self, page: u32) {
        self.unlist_page(page, PAGE_GRANULES);
        self.give_run_page(page);
    }

    /// Returns a page to the pool. The page is in no list and has no runs.
    pub(crate) fn give_run_page(&mut self, page: u32) {
        self.sub_field(partition_word::RUN_PAGES, 1);
        self.region().disown_page(page);
        self.region().release_page(page);
    }

    /// Takes a page from the pool for a large value and puts it before `next` in the value's chain. Returns None if the
    /// pool has none.
    pub(crate) fn add_value_page(&mut self, grant: &mut Grant, next: u32) -> Option<u32> {
        let page = grant.claim()?;
        self.region().set_link(page, self.id(), NO_PAGE, next);
        self.region()
            .store(self.region().page_meta(page, page_word::USED), u64::MAX);
        self.add_field(partition_word::VALUE_PAGES, 1);
        Some(page)
    }

    /// Frees a chain of value pages; the count bounds the loop even if the chain is corrupt.
    pub(crate) fn free_value_pages(&mut self, first: u32, count: u32) {
        let mut page = first;
        for _ in 0..count {
            if page >= self.region().layout.pages {
                return;
            }
            let next = self.region().next_page(page);
            self.sub_field(partition_word::VALUE_PAGES, 1);
            self.region().disown_page(page);
            self.region().release_page(page);
            page = next;
        }
    }

    /// Puts a page first in the list of its longest hole; adds a full page to no list.
    pub(crate) fn list_page(&mut self, page: u32, hole: u32) {
        let next = match hole {
            0 => NO_PAGE,
            _ if self.field(partition_word::HOLE_LISTS) >> (hole - 1) & 1 == 1 => {
                self.hole_list(hole)
            }
            _ => NO_PAGE,
        };
        self.region().set_link(page, self.id(), NO_PAGE, next);
        if hole > 0 {
            self.region().set_previous(next, page);
            self.set_field(hole_head(hole), u64::from(page));
            self.set_field(
                partition_word::HOLE_LISTS,
                self.field(partition_word::HOLE_LISTS) | 1 << (hole - 1),
            );
        }
    }

    /// Removes a page from the list of its longest hole.
    pub(crate) fn unlist_page(&mut self, page: u32, hole: u32) {
        if hole == 0 {
            return;
        }
        let (previous, next) = (
            self.region().previous_page(page),
            self.region().next_page(page),
        );
        self.region().set_previous(next, previous);
        self.region().set_next(previous, next);
        if previous == NO_PAGE {
            self.set_field(hole_head(hole), u64::from(next));
        }
        if previous == NO_PAGE && next == NO_PAGE {
            self.set_field(
                partition_word::HOLE_LISTS,
                self.field(partition_word::HOLE_LISTS) & !(1 << (hole - 1)),
            );
        }
    }
}
