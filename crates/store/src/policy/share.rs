//! Enforces the shares of caches: a cache over its bound makes room among its own entries, and evictions skip the
//! entries of a cache within its reserve.
//!
//! The caller's ledger knows the bounds and returns the rank of a cache. If no cache has a bound or a reserve, this
//! file reads no entry. Otherwise a search in one partition skips at most 64 entries, and eight more for each page of a
//! large value.

use crate::entry::{Key, NewEntry};
use crate::entry_events::{Rank, RemovalCause};
use crate::footprint::Footprint;
use crate::index::IndexSlot;
use crate::layout::{GRANULE, partition_word};
use crate::partition::PartitionMut;

/// The number of entries that a search for an entry to evict may skip.
const MOST_PASSED_OVER: u32 = 64;
/// The number of entries that a search may skip in addition for each page that a large value needs. Skipping this many
/// entries takes as long as copying a page.
const PASSED_OVER_A_PAGE: u32 = 8;
/// The maximum number of index slots that one search reads; it is bounded because most slots are empty in a partition
/// with large values.
const MOST_SLOTS: u32 = 1024;

/// Controls how an eviction treats the entries of caches within their reserve.
pub(crate) struct Sparing {
    /// The number of reserved entries that the search may still skip.
    pub(crate) passes: u32,
    /// Whether the search gives up when it may skip no more entries and the next entry is reserved: another partition
    /// may have entries to evict.
    pub(crate) spares: bool,
}

impl Sparing {
    /// Returns the `Sparing` for one visit to a partition by a write that needs this many pages. `spares` is true while
    /// the write may continue in another partition.
    pub(crate) fn of_visit(pages: u32, spares: bool) -> Sparing {
        Sparing {
            passes: MOST_PASSED_OVER.saturating_add(pages.saturating_mul(PASSED_OVER_A_PAGE)),
            spares,
        }
    }
}

impl PartitionMut<'_> {
    /// Removes entries of a cache over its bound before a write stores another entry: at most about twice the bytes of
    /// the new entry, so that the cache also shrinks to a lowered bound. The search continues at the end of the last
    /// search. An entry with hits loses one hit instead of being removed.
    pub(crate) fn evict_over_bound(&mut self, key: &Key, new: &NewEntry, now: i64) {
        if self.rank(key.cache) != Rank::OverBound {
            return;
        }
        let replaced = self.find(key).map(|(_, entry)| entry.location);
        let footprint = Footprint::new(key.bytes.len(), new.value.len());
        let comes = (footprint.one_run_granules() as usize * GRANULE) as u64;
        let (mut freed, mut passed_over) = (0, 0);
        for _ in 0..MOST_SLOTS.min(self.slot_count()) {
            let (number, slot) = self.next_in_hand();
            if !slot.is_live() {
                continue;
            }
            let entry = self.entry(slot.location());
            if entry.header().cache != key.cache || replaced == Some(slot.location()) {
                passed_over += 1;
            } else if now >= entry.deadline() {
                freed += entry.allocation().granules();
                self.drop_entry(slot.location(), RemovalCause::Expired);
            } else if slot.hits() > 0 {
                let less =
                    IndexSlot::live(slot.tag(), slot.in_main(), slot.hits() - 1, slot.location());
                self.set_slot(number, less);
                passed_over += 1;
            } else {
                freed += entry.allocation().granules();
                self.drop_entry(slot.location(), RemovalCause::Evicted);
            }
            let enough = freed * GRANULE as u64 >= comes * 2;
            if passed_over >= MOST_PASSED_OVER || enough || self.rank(key.cache) != Rank::OverBound
            {
                return;
            }
        }
    }

    /// Returns the slot at the search's position, and advances the position.
    fn next_in_hand(&mut self) -> (u32, IndexSlot) {
        let number = match self.field(partition_word::SHARE_HAND) as u32 {
            hand if hand < self.slot_count() => hand,
            _ => 0,
        };
        self.set_field(partition_word::SHARE_HAND, u64::from(number) + 1);
        (number, self.slot(number))
    }

    /// Returns whether the entry belongs to a cache within its reserve. Returns true for location 0, which is no entry.
    pub(crate) fn is_reserved(&self, location: u32) -> bool {
        location == 0 || self.rank_at(location) == Rank::Reserved
    }

    /// Returns the rank of an entry's cache. If every cache has the rank `Plain`, does not read the entry.
    pub(crate) fn rank_at(&self, location: u32) -> Rank {
        match self.has_ranks() {
            true => self.rank(self.entry(location).header().cache),
            false => Rank::Plain,
        }
    }
}
