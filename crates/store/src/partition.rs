//! A partition as seen under its lock: shared for look-ups, exclusive for changes.
//!
//! What it is not: it takes no lock; `Region::partition` and `partition_mut` are where callers
//! promise that they did. The rule it guards: a [`PartitionRef`] writes only hit counters and
//! statistics.

use core::ops::Deref;
use core::sync::atomic::Ordering::Relaxed;

use crate::entry::EntryRef;
use crate::layout::NO_PAGE;
use crate::ledger::{Counter, EntryEvent};
use crate::region::Region;

/// A partition under its shared lock.
#[derive(Clone, Copy)]
pub struct PartitionRef<'r> {
    region: &'r Region,
    id: u32,
}

/// A partition under its exclusive lock.
pub struct PartitionMut<'r> {
    view: PartitionRef<'r>,
    ledger: &'r mut dyn FnMut(EntryEvent),
    /// The page that compaction is emptying: in no list, and not given away when its last run goes.
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

    /// A word of the partition's header.
    pub(crate) fn field(&self, word: usize) -> u64 {
        self.region.load(self.region.partition_at(self.id) + word)
    }

    /// Adds to a statistic; shared lock suffices.
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
    pub(crate) fn new(
        view: PartitionRef<'r>,
        ledger: &'r mut dyn FnMut(EntryEvent),
    ) -> PartitionMut<'r> {
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
        (self.ledger)(event);
    }
}
