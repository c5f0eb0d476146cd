//! S3-FIFO: who goes when space is needed.
//!
//! What it is not: the arena. It decides, unlinks and frees; `write.rs` asks.
//! The rule it guards: a hit costs a counter only; order changes under the exclusive lock, in the queues'
//! doubly linked lists that run through the entries' headers. An entry that is removed for any reason
//! unlinks itself, so no queue can name an entry that is gone.
//!
//! New entries join the small queue, or the main queue if their ghost is young. While the small queue
//! holds more than its share its oldest entry is judged: hit often enough, it moves to the main queue,
//! else it goes and leaves a ghost in its slot. The oldest of the main queue goes round again for each
//! hit it has. All sizes are counted in granules, so large and small values share by bytes.

use super::queue::queue_of;
use crate::entry::{Header, Key};
use crate::index::Slot;
use crate::layout::{GRANULE, partition_word, queue_word};
use crate::ledger::{Change, Counter, Why};
use crate::partition::PartitionMut;

impl PartitionMut<'_> {
    /// Judges one entry. False: it is spared, and went to the young end of the main queue.
    pub(crate) fn judge_one(&mut self, now: i64) -> bool {
        matches!(self.judge_oldest(now), Judged::Gone)
    }

    /// Removes one entry for its space; an expired one that is met goes first. False if there is none.
    pub(crate) fn evict_one(&mut self, now: i64) -> bool {
        // Each entry can be passed over four times: three hits, and its promotion.
        let bound = self.entries() * 4 + 1;
        for _ in 0..bound {
            match self.judge_oldest(now) {
                Judged::Gone => return true,
                Judged::Spared => {}
                Judged::Nobody => return false,
            }
        }
        false
    }

    fn judge_oldest(&mut self, now: i64) -> Judged {
        let main = !self.small_is_over_its_share();
        let location = self.field(queue_of(main) + queue_word::OLDEST) as u32;
        if location == 0 {
            return Judged::Nobody;
        }
        let entry = self.entry(location);
        let slot = self.slot(entry.slot());
        if now >= entry.deadline() {
            self.drop_entry(location, Why::Expired);
            return Judged::Gone;
        }
        let enough = if main {
            1
        } else {
            self.region().layout.params.promote_hits
        };
        if slot.hits() >= enough {
            self.spare(location, main);
            return Judged::Spared;
        }
        match main {
            true => self.drop_entry(location, Why::Evicted),
            false => self.evict_to_ghost(location),
        }
        Judged::Gone
    }

    /// To the young end of the main queue: promoted without hits, or reinserted with one hit less.
    fn spare(&mut self, location: u32, from_main: bool) {
        let entry = self.entry(location);
        let (number, granules) = (entry.slot(), entry.place().granules());
        let slot = self.slot(number);
        let hits = if from_main { slot.hits() - 1 } else { 0 };
        self.dequeue(from_main, location, granules);
        self.set_slot(number, Slot::live(slot.tag(), true, hits, location));
        self.enqueue(true, location, granules);
    }

    fn evict_to_ghost(&mut self, location: u32) {
        let entry = self.entry(location);
        let (number, granules) = (entry.slot(), entry.place().granules());
        let tag = self.slot(number).tag();
        let clock = self.field(partition_word::GHOST_CLOCK);
        self.add_field(partition_word::GHOST_CLOCK, granules);
        self.remove_entry(location, Why::Evicted, Slot::ghost(tag, clock));
    }

    /// Removes an entry and leaves its slot empty.
    pub(crate) fn drop_entry(&mut self, location: u32, why: Why) {
        self.remove_entry(location, why, Slot::EMPTY);
    }

    fn remove_entry(&mut self, location: u32, why: Why, leave: Slot) {
        let entry = self.entry(location);
        let (place, header) = (entry.place(), entry.header());
        let slot = self.slot(entry.slot());
        self.dequeue(slot.in_main(), location, place.granules());
        self.set_slot(entry.slot(), leave);
        self.free_place(&place);
        self.count(why.into());
        self.report(Change {
            cache: header.cache,
            version: header.version,
            bytes: place.granules() * GRANULE as u64,
            why: Some(why),
        });
    }

    /// Removes the entry of a key, whatever its deadline and version.
    pub fn remove(&mut self, key: &Key, why: Why) -> Option<Header> {
        let (_, entry) = self.find(key)?;
        let header = entry.header();
        self.drop_entry(entry.location, why);
        Some(header)
    }

    /// Makes sure that a key has a slot: if both buckets are full of live entries, the one that has
    /// proved itself least goes.
    pub(crate) fn ensure_slot(&mut self, hash: u64) {
        let worth = Slot::worth;
        let mut least: Option<Slot> = None;
        for number in self.aim(hash).slots() {
            let slot = self.slot(number);
            if !slot.is_live() {
                return;
            }
            if least.is_none_or(|other| worth(slot) < worth(other)) {
                least = Some(slot);
            }
        }
        if let Some(slot) = least {
            self.count(Counter::BucketEvictions);
            self.drop_entry(slot.location(), Why::Evicted);
        }
    }
}

enum Judged {
    Gone,
    Spared,
    Nobody,
}
