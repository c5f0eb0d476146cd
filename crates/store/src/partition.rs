//! The access to a partition that its lock allows: [`PartitionRef`] for lookups under a shared lock, [`PartitionMut`]
//! for changes under an exclusive lock.
//!
//! The lock itself belongs to the caller, which promises to hold it (`access.rs`). A [`PartitionRef`] writes only hit
//! counters and statistics.

use core::ops::Deref;
use core::sync::atomic::Ordering::Relaxed;

use crate::entry::{EntryRef, MAX_KEY};
use crate::entry_events::{Counter, EntryEvent, Ledger, Rank, RemovalCause};
use crate::layout::NO_PAGE;
use crate::region::Region;

/// The length of the longest key for the small buffer.
const SHORT_KEY: usize = 128;

/// A partition under its shared lock.
#[derive(Clone, Copy)]
pub struct PartitionRef<'r> {
    region: &'r Region,
    id: u32,
}

/// A partition under its exclusive lock.
pub struct PartitionMut<'r> {
    view: PartitionRef<'r>,
    ledger: &'r mut dyn Ledger,
    /// The page that compaction is emptying. It is in no list, and does not return to the pool together with its last
    /// run.
    pub(crate) vacating: u32,
}

impl<'r> PartitionRef<'r> {
    #[inline]
    pub(crate) fn new(region: &'r Region, id: u32) -> PartitionRef<'r> {
        PartitionRef { region, id }
    }

    #[inline]
    pub(crate) fn region(&self) -> &'r Region {
        self.region
    }

    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns a word of the partition's header.
    pub(crate) fn field(&self, word: usize) -> u64 {
        self.region.load(self.region.partition_at(self.id) + word)
    }

    /// Adds one to a statistic; needs only the shared lock.
    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        let at = self.region.partition_at(self.id) + counter.at();
        self.region.word(at).fetch_add(1, Relaxed);
    }

    #[inline]
    pub(crate) fn entry(&self, location: u32) -> EntryRef<'r> {
        EntryRef::new(self.region, location)
    }
}

impl<'r> Deref for PartitionMut<'r> {
    type Target = PartitionRef<'r>;

    fn deref(&self) -> &PartitionRef<'r> {
        &self.view
    }
}

impl<'r> PartitionMut<'r> {
    #[inline]
    pub(crate) fn new(view: PartitionRef<'r>, ledger: &'r mut dyn Ledger) -> PartitionMut<'r> {
        PartitionMut {
            view,
            ledger,
            vacating: NO_PAGE,
        }
    }

    pub(crate) fn set_field(&mut self, word: usize, value: u64) {
        self.region
            .store(self.region.partition_at(self.id) + word, value);
    }

    pub(crate) fn add_field(&mut self, word: usize, more: u64) {
        self.set_field(word, self.field(word).wrapping_add(more));
    }

    pub(crate) fn sub_field(&mut self, word: usize, less: u64) {
        self.set_field(word, self.field(word).saturating_sub(less));
    }

    pub(crate) fn report(&mut self, event: EntryEvent) {
        self.ledger.report(event);
    }

    #[inline]
    pub(crate) fn has_ranks(&self) -> bool {
        self.ledger.has_ranks()
    }

    pub(crate) fn rank(&self, cache: u32) -> Rank {
        self.ledger.rank(cache)
    }

    /// Reports the key of an entry that changes, if the ledger needs it.
    #[inline]
    pub(crate) fn name(&mut self, entry: &EntryRef, removed: Option<RemovalCause>) {
        if self.ledger.wants_names(entry.header().cache) {
            self.name_aloud(entry, removed);
        }
    }

    /// Reports the key of an entry. Uses a small buffer for most keys, because clearing a buffer for the longest key
    /// would cost more than the rest of this function.
    #[cold]
    fn name_aloud(&mut self, entry: &EntryRef, removed: Option<RemovalCause>) {
        match entry.header().key_len as usize <= SHORT_KEY {
            true => self.name_from(entry, removed, &mut [0; SHORT_KEY]),
            false => self.name_from(entry, removed, &mut [0; MAX_KEY]),
        }
    }

    fn name_from(&mut self, entry: &EntryRef, removed: Option<RemovalCause>, key: &mut [u8]) {
        let length = entry.copy_key(key);
        let event = entry.header().event(entry.allocation().granules(), removed);
        self.ledger.name(&event, &key[..length]);
    }
}
