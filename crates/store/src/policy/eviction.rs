//! S3-FIFO: chooses the entry to evict, removes it, and leaves a ghost in its slot. `params.rs` names the paper, and
//! the sizes that differ from it.
//!
//! A hit costs only one counter; the order of the queues changes under the exclusive lock alone. This file makes every
//! removal of an entry: it takes the entry out of its queue and its slot, frees its memory, and reports it to the
//! ledger. `room.rs` decides how much to evict.
//!
//! Entries join the main queue until the partition must evict for the first time. After this, new entries join the
//! small queue; an entry with a young ghost joins the main queue if an old entry there is unused. While the small queue
//! holds more than its share, the policy considers its oldest entry: if the entry was hit since it was stored, it moves
//! to the main queue; otherwise it is evicted and leaves a ghost in its slot. The oldest entry of the main queue goes
//! round again once for each of its hits. An entry of the main queue that expires also leaves a ghost, because its key
//! is likely to return. All sizes are counted in granules, so that large and small values share the memory by bytes.

use super::queue::queue_of;
use super::share::Sparing;
use crate::entry::{Header, Key};
use crate::entry_events::{Counter, Rank, RemovalCause};
use crate::index::IndexSlot;
use crate::layout::{partition_word, queue_word};
use crate::partition::PartitionMut;

/// The number of entries of the main queue with which a returning key is compared. With one, loads whose working set
/// moves lose two points of hit rate; with three, a load of four times the tier loses two points.
const OLDEST_COMPARED: u32 = 2;

impl PartitionMut<'_> {
    /// Considers one entry for eviction, and returns whether the entry was removed. Otherwise the entry moves to the
    /// young end of the main queue, or keeps its position because it is spared.
    pub(crate) fn judge_one(&mut self, now: i64, sparing: &mut Sparing) -> bool {
        let mut judged = self.judge_oldest(now, sparing);
        while matches!(judged, Judged::PassedOver) {
            judged = self.judge_oldest(now, sparing);
        }
        matches!(judged, Judged::Removed)
    }

    /// Evicts one entry, or removes an expired entry if it finds one first. Returns false if the partition has no
    /// entry, or if the search finds only entries that `sparing` spares.
    pub(crate) fn evict_one(&mut self, now: i64, sparing: &mut Sparing) -> bool {
        // Each entry can stay four times: for three hits, and for its promotion.
        let bound = self.entries() * 4 + 1 + u64::from(sparing.passes);
        for _ in 0..bound {
            match self.judge_oldest(now, sparing) {
                Judged::Removed => return true,
                Judged::Reinserted | Judged::PassedOver => {}
                Judged::Spared | Judged::QueueEmpty => return false,
            }
        }
        false
    }

    /// Considers the oldest entry of the queue that must give an entry next.
    fn judge_oldest(&mut self, now: i64, sparing: &mut Sparing) -> Judged {
        self.set_field(partition_word::FULL, 1);
        let main = !self.small_exceeds_its_share();
        let mut location = self.oldest(main);
        let from_other = sparing.passes == 0
            && self.is_reserved(location)
            && !self.is_reserved(self.oldest(!main));
        if from_other {
            location = self.oldest(!main);
        }
        if location == 0 {
            return Judged::QueueEmpty;
        }
        let entry = self.entry(location);
        let slot = self.slot(entry.slot());
        let main = slot.in_main();
        if now >= entry.deadline() {
            self.drop_entry(location, RemovalCause::Expired);
            return Judged::Removed;
        }
        let enough = match self.rank_at(location) {
            Rank::OverBound => u32::MAX,
            _ if from_other => u32::MAX,
            Rank::Reserved if sparing.passes > 0 => {
                sparing.passes -= 1;
                self.reinsert(location, main, slot.hits());
                return Judged::PassedOver;
            }
            Rank::Reserved if sparing.spares => return Judged::Spared,
            _ if main => 1,
            _ => self.region().layout.params.promote_hits,
        };
        if slot.hits() >= enough {
            let hits = if main { slot.hits() - 1 } else { 0 };
            self.reinsert(location, main, hits);
            return Judged::Reinserted;
        }
        match main {
            true => self.drop_entry(location, RemovalCause::Evicted),
            false => self.evict_to_ghost(location),
        }
        Judged::Removed
    }

    /// Returns the oldest entry of a queue; 0 if the queue is empty.
    fn oldest(&self, main: bool) -> u32 {
        self.field(queue_of(main) + queue_word::OLDEST) as u32
    }

    /// Returns whether a returning key has a better claim to the main queue: one of the queue's two oldest entries has
    /// no hits, or the queue is empty. An entry with hits moves to the young end with half of them. So keys that keep
    /// returning displace entries without readers, while a load that reads the whole main queue keeps it.
    pub(crate) fn main_gives_way(&mut self) -> bool {
        for _ in 0..OLDEST_COMPARED {
            let location = self.field(partition_word::MAIN + queue_word::OLDEST) as u32;
            if location == 0 {
                return true;
            }
            let hits = self.slot(self.entry(location).slot()).hits();
            if hits == 0 {
                return true;
            }
            self.reinsert(location, true, hits / 2);
        }
        false
    }

    /// Moves an entry to the young end of the main queue, with this many hits.
    fn reinsert(&mut self, location: u32, from_main: bool, hits: u32) {
        let entry = self.entry(location);
        let (number, granules) = (entry.slot(), entry.allocation().granules());
        let slot = self.slot(number);
        self.dequeue(from_main, location, granules);
        self.set_slot(number, IndexSlot::live(slot.tag(), true, hits, location));
        self.enqueue(true, location, granules);
    }

    fn evict_to_ghost(&mut self, location: u32) {
        let entry = self.entry(location);
        let (number, granules) = (entry.slot(), entry.allocation().granules());
        let tag = self.slot(number).tag();
        let clock = self.field(partition_word::GHOST_CLOCK);
        self.add_field(partition_word::GHOST_CLOCK, granules);
        self.remove_entry(
            location,
            RemovalCause::Evicted,
            IndexSlot::ghost(tag, clock),
        );
    }

    /// Removes an entry. Leaves its slot empty, or leaves a ghost in it if the entry expired in the main queue.
    pub(crate) fn drop_entry(&mut self, location: u32, cause: RemovalCause) {
        let slot = self.slot(self.entry(location).slot());
        let successor = match cause {
            RemovalCause::Expired if slot.in_main() => {
                IndexSlot::ghost(slot.tag(), self.field(partition_word::GHOST_CLOCK))
            }
            _ => IndexSlot::EMPTY,
        };
        self.remove_entry(location, cause, successor);
    }

    fn remove_entry(&mut self, location: u32, cause: RemovalCause, successor: IndexSlot) {
        let entry = self.entry(location);
        self.name(&entry, Some(cause)); // before the memory is freed, while the key can still be read
        let (allocation, header) = (entry.allocation(), entry.header());
        let slot = self.slot(entry.slot());
        self.dequeue(slot.in_main(), location, allocation.granules());
        self.set_slot(entry.slot(), successor);
        self.free_allocation(&allocation);
        self.count(cause.into());
        self.report(header.event(allocation.granules(), Some(cause)));
    }

    /// Removes the entry of a key, with any deadline and version. Returns its header; None if the key has no entry.
    pub fn remove(&mut self, key: &Key, cause: RemovalCause) -> Option<Header> {
        let (_, entry) = self.find(key)?;
        let header = entry.header();
        self.drop_entry(entry.location, cause);
        Some(header)
    }

    /// Ensures that a new key finds a slot. If all but a thirty-second part of the index is full, evicts entries from
    /// the queues, as for a lack of memory, so that entries that are no longer read lose their hits. Three of five keys
    /// still find both of their buckets full of live entries. For such a key, the least used entry of both buckets
    /// makes room.
    pub(crate) fn ensure_slot(&mut self, hash: u64, now: i64) {
        if self.index_is_full() {
            self.evict_one(now, &mut Sparing::of_visit(0, true));
        }
        if self
            .probe(hash)
            .slots()
            .any(|number| !self.slot(number).is_live())
        {
            return;
        }
        let order = |slot: &IndexSlot| (self.rank_at(slot.location()), slot.use_rank());
        let slots = self.probe(hash).slots().map(|number| self.slot(number));
        if let Some(slot) = slots.min_by_key(order) {
            self.count(Counter::BucketEvictions);
            self.drop_entry(slot.location(), RemovalCause::Evicted);
        }
    }
}

/// The outcome for the oldest entry of a queue.
enum Judged {
    Removed,
    Reinserted,
    /// The entry stays regardless of its hits, because its cache is within its reserve.
    PassedOver,
    /// The entry stays because its cache is within its reserve, and the search may skip no more entries.
    Spared,
    QueueEmpty,
}
