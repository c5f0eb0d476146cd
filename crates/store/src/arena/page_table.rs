//! The page table: for each page, the granules in use, the partition that owns it, and its links to other pages.
//!
//! A page number outside the table maps to the region's scrap word, so that a corrupt word in the region cannot cause
//! an access at any other address.
use crate::layout::{GRANULE, NO_PAGE, PAGE_GRANULES, PAGE_META_BYTES, page_word};
use crate::region::Region;

/// The kind of a run. Heads and tails are recorded separately, because a tail has no header that leads to its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunKind {
    Head,
    Tail,
}

impl Region {
    /// Returns the offset of a page's word; `word` is a constant of `page_word`.
    pub(crate) fn page_meta(&self, page: u32, word: usize) -> usize {
        if page >= self.layout.pages {
            return usize::MAX;
        }
        self.layout.page_table_at + page as usize * PAGE_META_BYTES + word
    }

    fn starts_at(&self, page: u32, run: RunKind) -> usize {
        self.page_meta(
            page,
            match run {
                RunKind::Head => page_word::HEADS,
                RunKind::Tail => page_word::TAILS,
            },
        )
    }

    /// Returns the page that contains a location.
    pub(crate) fn page_of(&self, location: u32) -> u32 {
        let first = (self.layout.arena_at / GRANULE) as u32;
        location.wrapping_sub(first) / PAGE_GRANULES
    }

    /// Returns the index of a location's granule within its page.
    pub(crate) fn granule_of(&self, location: u32) -> u32 {
        let first = (self.layout.arena_at / GRANULE) as u32;
        location.wrapping_sub(first) % PAGE_GRANULES
    }

    pub(crate) fn location(&self, page: u32, granule: u32) -> u32 {
        (self.layout.arena_at / GRANULE) as u32 + page * PAGE_GRANULES + granule
    }

    /// Returns the offset of a page's first byte.
    pub(crate) fn page_at(&self, page: u32) -> usize {
        self.location(page, 0) as usize * GRANULE
    }

    /// Returns a bit mask of the granules in use.
    pub(crate) fn used(&self, page: u32) -> u64 {
        self.load(self.page_meta(page, page_word::USED))
    }

    /// Returns a bit mask of the granules where a run of this kind starts.
    pub(crate) fn starts(&self, page: u32, run: RunKind) -> u64 {
        self.load(self.starts_at(page, run))
    }

    pub(crate) fn flip_start(&self, page: u32, run: RunKind, granule: u32) {
        let at = self.starts_at(page, run);
        self.store(at, self.load(at) ^ 1 << granule);
    }

    pub(crate) fn next_page(&self, page: u32) -> u32 {
        (self.load(self.page_meta(page, page_word::LINK)) & u64::from(NO_PAGE)) as u32
    }

    pub(crate) fn previous_page(&self, page: u32) -> u32 {
        (self.load(self.page_meta(page, page_word::LINK)) >> page_word::PREVIOUS_SHIFT
            & u64::from(NO_PAGE)) as u32
    }

    /// Returns the partition that owns a page, or `NO_PAGE` if the page is free. Without the partition's lock the
    /// result is only a hint.
    pub(crate) fn page_owner(&self, page: u32) -> u32 {
        match self.load(self.page_meta(page, page_word::LINK)) >> page_word::OWNER_SHIFT {
            page_word::NO_OWNER => NO_PAGE,
            owner => owner as u32,
        }
    }

    pub(crate) fn disown_page(&self, page: u32) {
        self.set_link(page, page_word::NO_OWNER as u32, NO_PAGE, NO_PAGE);
    }

    pub(crate) fn set_link(&self, page: u32, owner: u32, previous: u32, next: u32) {
        let word = u64::from(owner) << page_word::OWNER_SHIFT
            | u64::from(previous) << page_word::PREVIOUS_SHIFT
            | u64::from(next);
        self.store(self.page_meta(page, page_word::LINK), word);
    }

    pub(crate) fn set_next(&self, page: u32, next: u32) {
        if page != NO_PAGE {
            let at = self.page_meta(page, page_word::LINK);
            self.store(at, self.load(at) & !u64::from(NO_PAGE) | u64::from(next));
        }
    }

    pub(crate) fn set_previous(&self, page: u32, previous: u32) {
        if page != NO_PAGE {
            let at = self.page_meta(page, page_word::LINK);
            self.store(
                at,
                self.load(at) & !(u64::from(NO_PAGE) << page_word::PREVIOUS_SHIFT)
                    | u64::from(previous) << page_word::PREVIOUS_SHIFT,
            );
        }
    }
}
