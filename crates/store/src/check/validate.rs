//! Walks over a whole region and asserts every invariant of the store, including that each byte of memory is
//! accounted for.
//!
//! This file is not part of a release build, because it allocates and panics; tests and fuzzing use it.

use std::collections::HashSet;
use std::vec;
use std::vec::Vec;

use crate::arena::bitmap::{longest_run, mask};
use crate::arena::page_table::RunKind;
use crate::arena::placement::is_short_split;
use crate::entry::EntryRef;
use crate::index::Probe;
use crate::layout::{GRANULE, NO_PAGE, PAGE_GRANULES, partition_word, queue_word};
use crate::partition::PartitionRef;
use crate::region::Region;
use crate::stats::Usage;

/// The expected state of a page, according to the entries found in the index.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Page {
    used: u64,
    heads: u64,
    tails: u64,
    owner: Option<u32>,
    runs: bool,
}

impl Region {
    /// Checks the whole region. No other thread or process may use it during the check. `reserved` is the number of
    /// pages in live grants. `hash` returns the hash of a cache and a key, so that the check can verify that a lookup
    /// finds each entry in its slot.
    pub fn validate(&self, reserved: u32, hash: impl Fn(u32, &[u8]) -> u64) {
        let mut pages = vec![Page::default(); self.layout.pages as usize];
        for id in 0..self.layout.partitions {
            let partition = PartitionRef::new(self, id);
            let entries = partition.check_index(&hash, &mut pages);
            partition.check_queues(&entries);
            partition.check_short_splits(&entries);
            partition.check_hole_lists(&pages);
        }
        self.check_pages(&pages, reserved);
        self.check_usage();
    }

    fn check_pages(&self, pages: &[Page], reserved: u32) {
        let mut free = 0;
        for (number, page) in pages.iter().enumerate() {
            let number = number as u32;
            let bit = self.page_is_free(number);
            assert_eq!(bit, page.owner.is_none(), "page {number} is free xor owned");
            free += u32::from(bit);
            match page.owner {
                None => assert_eq!(
                    self.page_owner(number),
                    NO_PAGE,
                    "free page {number} has an owner"
                ),
                Some(owner) => {
                    assert_eq!(self.page_owner(number), owner, "owner of page {number}");
                    assert_eq!(self.used(number), page.used, "bitmap of page {number}");
                }
            }
            if page.runs {
                assert_eq!(
                    self.starts(number, RunKind::Head),
                    page.heads,
                    "heads of {number}"
                );
                assert_eq!(
                    self.starts(number, RunKind::Tail),
                    page.tails,
                    "tails of {number}"
                );
            }
        }
        assert_eq!(
            free,
            self.free_pages() + reserved,
            "free bits = count + reserved"
        );
        self.check_summary();
    }

    /// Checks the summary: its bit may be set for a word without free pages, but must not be clear for a word with a
    /// free page.
    fn check_summary(&self) {
        for word in 0..self.layout.pool_words {
            let bits = self.load(self.layout.pool_at + word * 8);
            let summary = self.load(self.layout.summary_at + word / 64 * 8) >> (word % 64) & 1;
            assert!(bits == 0 || summary == 1, "summary of pool word {word}");
        }
    }

    fn check_usage(&self) {
        let Usage {
            region,
            bookkeeping,
            entries,
            holes,
            free,
        } = self.usage();
        assert_eq!(
            bookkeeping + entries + holes + free,
            region,
            "every byte is accounted for"
        );
        assert_eq!(
            entries,
            self.stats().bytes,
            "arena and queues agree on the bytes of entries"
        );
        assert!(
            region as usize <= self.layout.params.size,
            "the region exceeds its size"
        );
    }
}

impl PartitionRef<'_> {
    /// Collects the memory that entries occupy in `pages`, and returns the entries. Asserts that no granule has two
    /// owners and no key has two entries.
    fn check_index(&self, hash: &impl Fn(u32, &[u8]) -> u64, pages: &mut [Page]) -> Vec<u32> {
        let mut keys = HashSet::new();
        let mut entries = Vec::new();
        for number in 0..self.slot_count() {
            let slot = self.slot(number);
            if !slot.is_live() {
                continue;
            }
            let entry = self.entry(slot.location());
            assert_eq!(entry.slot(), number, "an entry names its slot");
            let header = entry.header();
            let mut key = vec![0; header.key_len as usize];
            entry.copy_key(&mut key);
            let hash = hash(header.cache, &key);
            let probe = Probe::new(hash, self.region().layout.buckets);
            assert_eq!(
                self.region().partition_of(hash),
                self.id(),
                "an entry is in its partition"
            );
            assert!(
                probe.slots().any(|slot| slot == number),
                "an entry is in one of its buckets"
            );
            assert_eq!(probe.tag, slot.tag(), "a slot has the tag of its key");
            assert!(keys.insert((header.cache, key)), "a key has one entry");
            self.occupy(&entry, pages);
            entries.push(slot.location());
        }
        entries
    }

    fn occupy(&self, entry: &EntryRef, pages: &mut [Page]) {
        let allocation = entry.allocation();
        self.occupy_run(allocation.head, allocation.head_len, RunKind::Head, pages);
        if allocation.tail != 0 {
            let word = self.region().load(allocation.tail as usize * GRANULE);
            assert_eq!(word as u32, allocation.head, "a tail names its head");
            assert_eq!(
                (word >> 32) as u32,
                allocation.tail_len,
                "a tail knows its length"
            );
            self.occupy_run(allocation.tail, allocation.tail_len, RunKind::Tail, pages);
        }
        let mut number = allocation.first_page;
        for _ in 0..allocation.pages {
            let page = &mut pages[number as usize];
            assert_eq!(page.owner, None, "a value page has one owner");
            *page = Page {
                used: u64::MAX,
                owner: Some(self.id()),
                ..Page::default()
            };
            number = self.region().next_page(number);
        }
        assert_eq!(
            number, NO_PAGE,
            "a chain of value pages ends where the value does"
        );
    }

    fn occupy_run(&self, location: u32, len: u32, run: RunKind, pages: &mut [Page]) {
        let number = self.region().page_of(location);
        let granule = location - self.region().location(number, 0);
        assert!(granule + len <= PAGE_GRANULES, "a run lies in one page");
        let page = &mut pages[number as usize];
        assert!(
            page.owner
                .is_none_or(|owner| owner == self.id() && page.runs),
            "a page has one use"
        );
        assert_eq!(
            page.used & mask(granule, len),
            0,
            "a granule belongs to one run"
        );
        page.used |= mask(granule, len);
        match run {
            RunKind::Head => page.heads |= 1 << granule,
            RunKind::Tail => page.tails |= 1 << granule,
        }
        (page.owner, page.runs) = (Some(self.id()), true);
    }

    fn check_queues(&self, entries: &[u32]) {
        let mut seen = HashSet::new();
        self.check_queue(partition_word::SMALL, false, &mut seen);
        self.check_queue(partition_word::MAIN, true, &mut seen);
        assert_eq!(
            seen,
            entries.iter().copied().collect(),
            "each live slot is in a queue"
        );
    }

    fn check_short_splits(&self, entries: &[u32]) {
        let short = |location: &&u32| is_short_split(&self.entry(**location).allocation());
        assert_eq!(
            self.field(partition_word::SHORT_SPLITS),
            entries.iter().filter(short).count() as u64,
            "short entries in two runs"
        );
    }

    fn check_queue(&self, queue: usize, main: bool, seen: &mut HashSet<u32>) {
        let mut location = self.field(queue + queue_word::NEWEST) as u32;
        let (mut newer, mut granules, mut count) = (0, 0, 0);
        while location != 0 {
            let entry = self.entry(location);
            assert!(seen.insert(location), "an entry is in one queue once");
            assert_eq!(entry.newer(), newer, "links agree in both directions");
            assert_eq!(
                self.slot(entry.slot()).location(),
                location,
                "a queue names live entries"
            );
            assert_eq!(
                self.slot(entry.slot()).in_main(),
                main,
                "a slot knows its queue"
            );
            granules += entry.allocation().granules();
            count += 1;
            (newer, location) = (location, entry.older());
        }
        assert_eq!(
            self.field(queue + queue_word::OLDEST) as u32,
            newer,
            "the oldest ends the queue"
        );
        assert_eq!(
            self.field(queue + queue_word::COUNT),
            count,
            "entries in the queue"
        );
        assert_eq!(
            self.field(queue + queue_word::GRANULES),
            granules,
            "granules in the queue"
        );
    }

    fn check_hole_lists(&self, pages: &[Page]) {
        let mut listed = HashSet::new();
        for hole in 1..=PAGE_GRANULES {
            if self.field(partition_word::HOLE_LISTS) >> (hole - 1) & 1 == 1 {
                self.check_hole_list(hole, &mut listed);
            }
        }
        let mine = |page: &&(usize, &Page)| page.1.owner == Some(self.id());
        let all: Vec<_> = pages.iter().enumerate().collect();
        let runs: Vec<_> = all.iter().filter(mine).filter(|page| page.1.runs).collect();
        let with_holes = runs
            .iter()
            .filter(|page| page.1.used != u64::MAX)
            .map(|page| page.0 as u32);
        assert_eq!(listed, with_holes.collect(), "pages with holes are listed");
        let granules: u32 = runs.iter().map(|page| page.1.used.count_ones()).sum();
        assert_eq!(
            self.field(partition_word::RUN_PAGES),
            runs.len() as u64,
            "pages that hold runs"
        );
        assert_eq!(
            self.field(partition_word::RUN_GRANULES),
            u64::from(granules),
            "granules in runs"
        );
        let values = all.iter().filter(mine).count() - runs.len();
        assert_eq!(
            self.field(partition_word::VALUE_PAGES),
            values as u64,
            "pages that hold values"
        );
    }

    fn check_hole_list(&self, hole: u32, listed: &mut HashSet<u32>) {
        let (mut previous, mut page) = (NO_PAGE, self.hole_list(hole));
        assert_ne!(page, NO_PAGE, "a list whose bit is set is not empty");
        while page != NO_PAGE {
            assert!(listed.insert(page), "a page is in one list");
            assert_eq!(
                self.region().previous_page(page),
                previous,
                "page links agree"
            );
            assert_eq!(
                longest_run(!self.region().used(page)),
                hole,
                "a page is in the list of its hole"
            );
            (previous, page) = (page, self.region().next_page(page));
        }
    }
}
