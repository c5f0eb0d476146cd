//! A partition as seen under its lock: shared for look-ups, exclusive for changes.
//!
//! What it is not: it takes no lock; `Region::partition` and `partition_mut` are where the caller promises
//! that the lock is held. The rule it guards: a [`PartitionRef`] writes only hit counters and statistics.

use core::ops::Deref;
use core::sync::atomic::Ordering::Relaxed;

use crate::arena::NO_PAGE;
use crate::entry::{EntryRef, Header, Key};
use crate::region::Region;
use crate::stats::{Change, Counter, Why};

/// Offsets of the words of a partition's header.
pub mod field {
    /// Queues: four words each, see `eviction.rs`.
    pub const SMALL: usize = 0;
    pub const MAIN: usize = 32;
    pub const GHOST_CLOCK: usize = 64;
    /// One bit for each length of hole that some page offers.
    pub const HOLE_LISTS: usize = 72;
    pub const RUN_PAGES: usize = 80;
    pub const RUN_GRANULES: usize = 88;
    pub const VALUE_PAGES: usize = 96;
    /// Short entries in two runs.
    pub const SHORT_SPLITS: usize = 104;
    /// Counters written under the exclusive lock, then those that readers write, on their own line.
    pub const COUNTERS: usize = 128;
    pub const READ_COUNTERS: usize = 256;
    pub const HOLE_HEADS: usize = 384;
}

/// The answer of [`PartitionRef::get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The value is in the first `value_len` bytes of the buffer.
    Hit(Header),
    /// Live, but the buffer is shorter than `value_len`; nothing was copied or counted.
    TooSmall(Header),
    Miss,
}

/// A partition under its shared lock.
#[derive(Clone, Copy)]
pub struct PartitionRef<'r> {
    region: &'r Region,
    id: u32,
}

/// A partition under its exclusive lock.
pub struct PartitionMut<'r> {
    view: PartitionRef<'r>,
    ledger: &'r mut dyn FnMut(Change),
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

    pub(crate) fn field(&self, field: usize) -> u64 {
        self.region.load(self.region.partition_at(self.id) + field)
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

    /// Copies a live value out. `valid` is the caller's rule about the version; an entry that fails
    /// it, or whose deadline is not after `now`, is a miss and stays where it is.
    #[inline]
    pub fn get(
        &self,
        key: &Key,
        now: i64,
        valid: impl FnOnce(&Header) -> bool,
        buffer: &mut [u8],
    ) -> Found {
        let found = self.find(key).filter(|(_, entry)| now < entry.deadline());
        let Some((slot, entry)) = found else {
            self.count(Counter::Misses);
            return Found::Miss;
        };
        let header = entry.header();
        if !valid(&header) {
            self.count(Counter::Misses);
            return Found::Miss;
        }
        if !entry.copy_value(buffer) {
            return Found::TooSmall(header);
        }
        self.count_hit(slot);
        self.count(Counter::Hits);
        Found::Hit(header)
    }

    /// The entry of a key whatever its deadline and version, for comparing in place. Counts nothing.
    #[inline]
    pub fn peek(&self, key: &Key) -> Option<EntryRef<'r>> {
        self.find(key).map(|(_, entry)| entry)
    }

    /// How much the entry of a key is used, as eviction judges it: 0 for one that was not read since it
    /// came or was last passed over, at most 7. None: there is no entry. Counts nothing.
    pub fn used(&self, key: &Key) -> Option<u32> {
        self.find(key).map(|(number, _)| self.slot(number).worth())
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
        ledger: &'r mut dyn FnMut(Change),
    ) -> PartitionMut<'r> {
        PartitionMut {
            view,
            ledger,
            vacating: NO_PAGE,
        }
    }

    pub(crate) fn set_field(&mut self, field: usize, value: u64) {
        self.region
            .store(self.region.partition_at(self.id) + field, value);
    }

    pub(crate) fn add_field(&mut self, field: usize, more: u64) {
        self.set_field(field, self.field(field).wrapping_add(more));
    }

    pub(crate) fn sub_field(&mut self, field: usize, less: u64) {
        self.set_field(field, self.field(field).saturating_sub(less));
    }

    pub(crate) fn report(&mut self, change: Change) {
        (self.ledger)(change);
    }

    /// Removes the entry of a key, whatever its deadline and version.
    pub fn remove(&mut self, key: &Key, why: Why) -> Option<Header> {
        let (_, entry) = self.find(key)?;
        let header = entry.header();
        self.drop_entry(entry.location, why);
        Some(header)
    }

    /// Gives an entry a new deadline; false if the key has none. Whether the old one has passed is the
    /// caller's question (`peek`).
    pub fn touch(&mut self, key: &Key, deadline: i64) -> bool {
        let found = self.find(key);
        if let Some((slot, entry)) = found {
            entry.set_deadline(deadline);
            self.count_hit(slot);
        }
        found.is_some()
    }
}
