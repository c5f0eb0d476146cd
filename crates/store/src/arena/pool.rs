//! The pool of free pages, which all partitions share without a lock.
//!
//! A page has exactly one owner. One bit for each page says whether the page is free. The process that clears the bit,
//! in an atomic read-modify-write, owns the page, and only the owner may set the bit again. The pool has no list
//! besides the bits, so it has no ABA problem. Acquire and release on the bit pass the last owner's writes to the next
//! owner.
//!
//! A writer first reserves pages from a count, and then claims that many bits. The invariant is: bits set = count +
//! pages that are reserved and not yet claimed. So a large entry gets all of its pages or none, and two writers
//! cannot each wait with half of what they need.
//!
//! `runs.rs` decides the use of a page.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use crate::layout::region_word;
use crate::region::Region;

/// The number of passes over the summary before a claim gives up. A reserved bit always exists, but it can move behind
/// the searcher; each such move means that another backend has made progress.
const CLAIM_ROUNDS: usize = 64;
/// The number of partitions where a writer considers only one entry each; from the next partition on it evicts as many
/// entries as it needs. The number is a third of the rounds that `SET_ROUNDS` allows.
const MAX_SINGLE_TURNS: u32 = 32;
/// The number of visits to partitions during which a writer spares entries of caches within their reserve. A writer
/// that still lacks room after these visits evicts reserved entries, too, because no write fails for want of space.
const MAX_SPARING_VISITS: u32 = 64;

/// Pages reserved by one writer while it moves from one partition lock to another. Dropping the grant returns them.
pub struct Grant<'r> {
    region: &'r Region,
    pages: u32,
    /// The number of partitions where this writer has considered only one entry; see `reclaim`.
    turns: u32,
    /// The number of visits to partitions so far.
    visits: u32,
}

impl Grant<'_> {
    /// Returns the number of reserved pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Counts a partition where the writer considers only one entry; returns false if the limit is exceeded.
    pub(crate) fn take_single_turn(&mut self) -> bool {
        self.turns += 1;
        self.turns <= MAX_SINGLE_TURNS
    }

    /// Counts a visit to a partition.
    pub(crate) fn visit(&mut self) {
        self.visits += 1;
    }

    /// Returns whether the writer still spares entries of caches within their reserve.
    pub(crate) fn spares(&self) -> bool {
        self.visits <= MAX_SPARING_VISITS
    }

    /// Reserves pages up to `wanted` in total; returns whether the grant covers them.
    pub(crate) fn fill(&mut self, wanted: u32) -> bool {
        if self.pages < wanted {
            self.pages += self.region.reserve_pages(wanted - self.pages);
        }
        self.pages >= wanted
    }

    /// Claims a reserved page, so that the caller owns it. Reserves a page first if the grant is empty. Returns None if
    /// the pool has none.
    pub(crate) fn claim(&mut self) -> Option<u32> {
        if !self.fill(1) {
            return None;
        }
        let page = self.region.claim_page()?;
        self.pages -= 1;
        Some(page)
    }
}

impl Drop for Grant<'_> {
    /// Also runs while a panic unwinds, because a reservation must not outlive its writer.
    fn drop(&mut self) {
        self.region.unreserve_pages(self.pages);
    }
}

impl Region {
    /// Returns an empty grant for calls of `set` and `reclaim`.
    pub fn grant(&self) -> Grant<'_> {
        Grant {
            region: self,
            pages: 0,
            turns: 0,
            visits: 0,
        }
    }

    pub(crate) fn start_pool(&self) {
        for page in 0..self.layout.pages {
            self.disown_page(page);
            self.mark_free(page);
        }
        self.store(region_word::FREE_PAGES, u64::from(self.layout.pages));
    }

    /// Returns the number of pages that writers may currently reserve.
    pub fn free_pages(&self) -> u32 {
        self.load(region_word::FREE_PAGES) as u32
    }

    fn reserve_pages(&self, wanted: u32) -> u32 {
        let free = self.word(region_word::FREE_PAGES);
        let mut seen = free.load(Relaxed);
        while seen > 0 {
            let take = seen.min(u64::from(wanted));
            match free.compare_exchange_weak(seen, seen - take, Acquire, Relaxed) {
                Ok(_) => return take as u32,
                Err(now) => seen = now,
            }
        }
        0
    }

    fn unreserve_pages(&self, pages: u32) {
        if pages > 0 {
            self.word(region_word::FREE_PAGES)
                .fetch_add(u64::from(pages), AcqRel);
        }
    }

    /// Returns an owned page to the pool.
    pub(crate) fn release_page(&self, page: u32) {
        self.mark_free(page);
        self.unreserve_pages(1);
    }

    /// Marks a page as free. Sets the page's bit first, then the summary bit: see `claim_in`.
    fn mark_free(&self, page: u32) {
        let word = page as usize / 64;
        if word < self.layout.pool_words {
            self.word(self.layout.pool_at + word * 8)
                .fetch_or(1 << (page % 64), SeqCst);
            self.summary(word / 64).fetch_or(1 << (word % 64), SeqCst);
        }
    }

    fn summary(&self, index: usize) -> &core::sync::atomic::AtomicU64 {
        self.word(self.layout.summary_at + index * 8)
    }

    /// Claims any free page. The caller holds a reservation, so one exists.
    fn claim_page(&self) -> Option<u32> {
        let words = self.layout.summary_words;
        let start = self.load(region_word::SUMMARY_HINT) as usize % words.max(1);
        for step in 0..words * CLAIM_ROUNDS {
            let index = (start + step) % words;
            let mut groups = self.summary(index).load(Acquire);
            while groups != 0 {
                let word = index * 64 + groups.trailing_zeros() as usize;
                if let Some(page) = self.claim_in(word) {
                    if step > 0 {
                        self.store(region_word::SUMMARY_HINT, index as u64);
                    }
                    return Some(page);
                }
                groups &= groups - 1;
            }
        }
        None
    }

    /// Claims a page of one word. If the word becomes empty, clears its summary bit and then reads the word again. If
    /// another process frees a page at the same time, this read sees the page, or that process sets the summary bit
    /// after the read.
    fn claim_in(&self, word: usize) -> Option<u32> {
        let bits = self.word(self.layout.pool_at + word * 8);
        let mut seen = bits.load(Acquire);
        while seen != 0 {
            let bit = seen & seen.wrapping_neg();
            let before = bits.fetch_and(!bit, SeqCst);
            if before & bit != 0 {
                if before == bit {
                    self.clear_summary(word);
                }
                return Some(word as u32 * 64 + bit.trailing_zeros());
            }
            seen = before;
        }
        self.clear_summary(word);
        None
    }

    fn clear_summary(&self, word: usize) {
        let bit = 1 << (word % 64);
        self.summary(word / 64).fetch_and(!bit, SeqCst);
        if self.word(self.layout.pool_at + word * 8).load(SeqCst) != 0 {
            self.summary(word / 64).fetch_or(bit, SeqCst);
        }
    }

    #[cfg(any(test, feature = "validate"))]
    pub(crate) fn page_is_free(&self, page: u32) -> bool {
        self.load(self.layout.pool_at + page as usize / 64 * 8) >> (page % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::SeqCst;
    use crate::check::testing::Memory;
    use crate::region::Region;
    use std::sync::atomic::{AtomicU8, Ordering};

    #[test]
    fn no_page_has_two_owners_and_none_is_lost_under_threads() {
        let memory = Memory::new(600 << 10, 1);
        take_and_give(&memory, 4, if cfg!(miri) { 20 } else { 60_000 });
    }

    /// Runs the race of `claim_in` step by step, because threads hit its window too rarely.
    #[test]
    fn a_page_freed_while_its_summary_is_cleared_is_found_again() {
        let memory = Memory::new(100 << 10, 1);
        let region = &memory.region;
        while region.claim_page().is_some() {}
        region.mark_free(3);
        region
            .word(region.layout.pool_at)
            .fetch_and(!(1 << 3), SeqCst);
        region.mark_free(5);
        region.clear_summary(0);
        assert_eq!(region.claim_page(), Some(5));
    }

    fn take_and_give(memory: &Memory, threads: u32, rounds: usize) {
        let region = &memory.region;
        let owners: Vec<AtomicU8> = (0..region.layout.pages).map(|_| AtomicU8::new(0)).collect();
        std::thread::scope(|scope| {
            for seed in 1..=threads {
                let owners = &owners;
                scope.spawn(move || take_turns(region, owners, seed, rounds));
            }
        });
        assert_eq!(region.free_pages(), region.layout.pages);
        region.validate(0, crate::check::testing::hash);
    }

    fn take_turns(region: &Region, owners: &[AtomicU8], seed: u32, rounds: usize) {
        let mut mine = Vec::new();
        let mut state = seed;
        let give = |page: u32| {
            owners[page as usize].store(0, Ordering::Relaxed);
            region.release_page(page);
        };
        for _ in 0..rounds {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mut grant = region.grant();
            grant.fill(state >> 26);
            for _ in 0..grant.pages().min(state >> 27) {
                let page = grant.claim().expect("a reserved page exists");
                assert_eq!(
                    owners[page as usize].swap(1, Ordering::Relaxed),
                    0,
                    "one owner"
                );
                mine.push(page);
            }
            drop(grant);
            mine.drain(mine.len() / 3..).for_each(give);
        }
        mine.into_iter().for_each(give);
    }
}
