//! The arena: pages cut into runs of granules, and pages that a large value fills alone.
//!
//! What it is not: it does not decide what to evict, and it does not move entries (`compact.rs`).
//! The rule it guards: each granule belongs to one run, and any freed page serves any value, so no
//! history of sizes can spoil the tier.
//!
//! A page that holds runs sits in one of 64 lists of its partition, by its longest hole. A word with one
//! bit a list gives the tightest list that fits in one instruction.
//!
//! ```text
//! page table, 32 bytes a page: | used bitmap | head-run starts | tail-run starts | link |
//! link word: owner (12 bits) << 52 | previous page (26) << 26 | next page (26)
//! ```

use crate::layout::{GRANULE, PAGE_GRANULES, PAGE_META_BYTES};
use crate::partition::{PartitionMut, PartitionRef, field};
use crate::pool::Grant;
use crate::region::Region;

/// No page: the link of the last page in a list. As an owner (of 12 bits): nobody.
pub const NO_PAGE: u32 = (1 << 26) - 1;
const NO_OWNER: u64 = (1 << 12) - 1;
const USED: usize = 0;
const HEADS: usize = 8;
const TAILS: usize = 16;
const LINK: usize = 24;

/// What a run is the start of; kept apart because a tail has no header to find its entry by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Run {
    Head,
    Tail,
}

/// A bit for each position where `n` free granules begin.
pub fn fits(free: u64, n: u32) -> u64 {
    let mut starts = free;
    let mut have = 1;
    while have < n {
        let step = have.min(n - have);
        starts &= starts >> step;
        have += step;
    }
    starts
}

/// Length of the longest run of ones.
pub fn longest(free: u64) -> u32 {
    let mut powers = [free; 7];
    for power in 1..7 {
        powers[power] = powers[power - 1] & powers[power - 1] >> (1 << (power - 1));
    }
    let mut starts = u64::MAX;
    let mut length = 0u32;
    for power in (0..7).rev() {
        let longer = starts & powers[power].checked_shr(length).unwrap_or(0);
        if longer != 0 {
            starts = longer;
            length += 1 << power;
        }
    }
    length
}

/// `n` ones from bit `at`.
pub fn ones(at: u32, n: u32) -> u64 {
    if n >= 64 {
        u64::MAX
    } else {
        ((1 << n) - 1) << (at & 63)
    }
}

/// Where to cut `n` granules: a hole of just this size if there is one, else the first that fits.
fn best_hole(free: u64, n: u32) -> Option<u32> {
    let fitting = fits(free, n);
    let hole_starts = free & !(free << 1);
    let longer = if n < 64 { fits(free, n + 1) } else { 0 };
    let exact = fitting & hole_starts & !longer;
    let choice = if exact != 0 { exact } else { fitting };
    (choice != 0).then(|| choice.trailing_zeros())
}

impl Region {
    fn meta(&self, page: u32, word: usize) -> usize {
        if page >= self.layout.pages {
            return usize::MAX;
        }
        self.layout.page_table_at + page as usize * PAGE_META_BYTES + word
    }

    pub(crate) fn page_of(&self, location: u32) -> u32 {
        let first = (self.layout.arena_at / GRANULE) as u32;
        location.wrapping_sub(first) / PAGE_GRANULES
    }

    fn granule_of(&self, location: u32) -> u32 {
        let first = (self.layout.arena_at / GRANULE) as u32;
        location.wrapping_sub(first) % PAGE_GRANULES
    }

    pub(crate) fn location(&self, page: u32, granule: u32) -> u32 {
        (self.layout.arena_at / GRANULE) as u32 + page * PAGE_GRANULES + granule
    }

    pub(crate) fn page_at(&self, page: u32) -> usize {
        self.location(page, 0) as usize * GRANULE
    }

    pub(crate) fn used(&self, page: u32) -> u64 {
        self.load(self.meta(page, USED))
    }

    pub(crate) fn starts(&self, page: u32, run: Run) -> u64 {
        self.load(self.meta(page, if run == Run::Head { HEADS } else { TAILS }))
    }

    fn flip_start(&self, page: u32, run: Run, granule: u32) {
        let at = self.meta(page, if run == Run::Head { HEADS } else { TAILS });
        self.store(at, self.load(at) ^ 1 << granule);
    }

    pub(crate) fn next_page(&self, page: u32) -> u32 {
        (self.load(self.meta(page, LINK)) & u64::from(NO_PAGE)) as u32
    }

    pub(crate) fn previous_page(&self, page: u32) -> u32 {
        (self.load(self.meta(page, LINK)) >> 26 & u64::from(NO_PAGE)) as u32
    }

    /// Readable without a lock, as a hint; `NO_PAGE` for a free page.
    pub(crate) fn page_owner(&self, page: u32) -> u32 {
        match self.load(self.meta(page, LINK)) >> 52 {
            NO_OWNER => NO_PAGE,
            owner => owner as u32,
        }
    }

    pub(crate) fn disown_page(&self, page: u32) {
        self.set_link(page, NO_OWNER as u32, NO_PAGE, NO_PAGE);
    }

    pub(crate) fn set_link(&self, page: u32, owner: u32, previous: u32, next: u32) {
        let word = u64::from(owner) << 52 | u64::from(previous) << 26 | u64::from(next);
        self.store(self.meta(page, LINK), word);
    }

    fn set_next(&self, page: u32, next: u32) {
        if page != NO_PAGE {
            let at = self.meta(page, LINK);
            self.store(at, self.load(at) & !u64::from(NO_PAGE) | u64::from(next));
        }
    }

    fn set_previous(&self, page: u32, previous: u32) {
        if page != NO_PAGE {
            let at = self.meta(page, LINK);
            self.store(
                at,
                self.load(at) & !(u64::from(NO_PAGE) << 26) | u64::from(previous) << 26,
            );
        }
    }
}

impl PartitionRef<'_> {
    /// First page whose longest hole has this length.
    pub(crate) fn hole_list(&self, length: u32) -> u32 {
        self.field(field::HOLE_HEADS + 8 * (length as usize - 1)) as u32
    }
}

impl PartitionMut<'_> {
    /// Cuts `n` granules from the tightest list of this partition's pages; never takes a new page.
    pub(crate) fn cut_run(&mut self, n: u32, run: Run) -> Option<u32> {
        if n == 0 || n > PAGE_GRANULES {
            return None;
        }
        let fitting = self.field(field::HOLE_LISTS) & u64::MAX << (n - 1);
        if fitting == 0 {
            return None;
        }
        let page = self.hole_list(fitting.trailing_zeros() + 1);
        let granule = best_hole(!self.region().used(page), n)?;
        self.occupy(page, granule, n, run);
        Some(self.region().location(page, granule))
    }

    /// Length of the longest hole in any page of this partition.
    pub(crate) fn longest_hole(&self) -> u32 {
        64 - self.field(field::HOLE_LISTS).leading_zeros()
    }

    fn occupy(&mut self, page: u32, granule: u32, n: u32, run: Run) {
        let used = self.region().used(page);
        self.set_used(page, used, used | ones(granule, n));
        self.region().flip_start(page, run, granule);
        self.add_field(field::RUN_GRANULES, u64::from(n));
    }

    /// Gives a run back; a page without runs goes back to the pool.
    pub(crate) fn free_run(&mut self, location: u32, n: u32, run: Run) {
        let page = self.region().page_of(location);
        let granule = self.region().granule_of(location);
        let used = self.region().used(page);
        self.region().flip_start(page, run, granule);
        self.sub_field(field::RUN_GRANULES, u64::from(n));
        self.set_used(page, used, used & !ones(granule, n));
        if self.region().used(page) == 0 && page != self.vacating {
            self.drop_run_page(page);
        }
    }

    /// Changes a page's bitmap and moves the page to the list of its longest hole.
    fn set_used(&mut self, page: u32, before: u64, after: u64) {
        let (old, new) = (longest(!before), longest(!after));
        let relist = old != new && page != self.vacating;
        if relist {
            self.unlist(page, old);
        }
        self.region().store(self.region().meta(page, USED), after);
        if relist {
            self.list(page, new);
        }
    }

    /// Takes a page from the pool for runs; it joins the list of longest holes.
    pub(crate) fn add_run_page(&mut self, grant: &mut Grant) -> bool {
        let Some(page) = grant.claim() else {
            return false;
        };
        for word in [USED, HEADS, TAILS] {
            self.region().store(self.region().meta(page, word), 0);
        }
        self.add_field(field::RUN_PAGES, 1);
        self.list(page, PAGE_GRANULES);
        true
    }

    fn drop_run_page(&mut self, page: u32) {
        self.unlist(page, PAGE_GRANULES);
        self.give_run_page(page);
    }

    /// Gives a page that is in no list and holds no run back to the pool.
    pub(crate) fn give_run_page(&mut self, page: u32) {
        self.sub_field(field::RUN_PAGES, 1);
        self.region().disown_page(page);
        self.region().release_page(page);
    }

    /// Takes a page from the pool for a large value and puts it before `next` in the value's chain.
    pub(crate) fn add_value_page(&mut self, grant: &mut Grant, next: u32) -> Option<u32> {
        let page = grant.claim()?;
        self.region().set_link(page, self.id(), NO_PAGE, next);
        self.region()
            .store(self.region().meta(page, USED), u64::MAX);
        self.add_field(field::VALUE_PAGES, 1);
        Some(page)
    }

    /// Frees a chain of value pages; bounded by the count even if the chain is not.
    pub(crate) fn free_value_pages(&mut self, first: u32, count: u32) {
        let mut page = first;
        for _ in 0..count {
            if page >= self.region().layout.pages {
                return;
            }
            let next = self.region().next_page(page);
            self.sub_field(field::VALUE_PAGES, 1);
            self.region().disown_page(page);
            self.region().release_page(page);
            page = next;
        }
    }

    pub(crate) fn list(&mut self, page: u32, hole: u32) {
        let next = match hole {
            0 => NO_PAGE,
            _ if self.field(field::HOLE_LISTS) >> (hole - 1) & 1 == 1 => self.hole_list(hole),
            _ => NO_PAGE,
        };
        self.region().set_link(page, self.id(), NO_PAGE, next);
        if hole > 0 {
            self.region().set_previous(next, page);
            self.set_field(field::HOLE_HEADS + 8 * (hole as usize - 1), u64::from(page));
            self.set_field(
                field::HOLE_LISTS,
                self.field(field::HOLE_LISTS) | 1 << (hole - 1),
            );
        }
    }

    pub(crate) fn unlist(&mut self, page: u32, hole: u32) {
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
            self.set_field(field::HOLE_HEADS + 8 * (hole as usize - 1), u64::from(next));
        }
        if previous == NO_PAGE && next == NO_PAGE {
            self.set_field(
                field::HOLE_LISTS,
                self.field(field::HOLE_LISTS) & !(1 << (hole - 1)),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_and_fits_agree_with_counting() {
        let mut word = 0x1234_5678_9ABC_DEF1u64;
        for round in 0..if cfg!(miri) { 200 } else { 20_000 } {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let free = match round % 4 {
                0 => word,
                1 => word & word >> 7,
                2 => word | word << 9 | word >> 20,
                _ => ones(round % 64, 1 + round % 64),
            };
            let mut best = 0;
            let mut run = 0;
            for bit in 0..64 {
                run = if free >> bit & 1 == 1 { run + 1 } else { 0 };
                best = best.max(run);
            }
            assert_eq!(longest(free), best, "{free:064b}");
            assert_eq!(fits(free, best.max(1)) != 0, best > 0);
            assert!(best == 64 || fits(free, best + 1) == 0);
        }
        assert_eq!((longest(0), longest(u64::MAX)), (0, 64));
    }

    #[test]
    fn a_hole_of_just_the_right_size_is_preferred() {
        let free = 0b0111_0000_1111_1100;
        assert_eq!(best_hole(free, 3), Some(12));
        assert_eq!(best_hole(free, 6), Some(2));
        assert_eq!(best_hole(free, 2), Some(2));
        assert_eq!(best_hole(free, 7), None);
    }
}
