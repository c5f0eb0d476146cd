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

use crate::index::Slot;
use crate::partition::{PartitionMut, field};
use crate::region::Region;
use crate::stats::{Change, Counter, Why};

/// Words of a queue.
const NEWEST: usize = 0;
const OLDEST: usize = 8;
pub const COUNT: usize = 16;
pub const GRANULES: usize = 24;

/// Below this many entries a partition looks at the whole tier; the sum costs as much as a small copy.
const FEW: u64 = 256;

fn queue_of(main: bool) -> usize {
    if main { field::MAIN } else { field::SMALL }
}

/// Granules in each kind of queue.
#[derive(Default)]
struct Queues {
    small: u64,
    main: u64,
}

impl Region {
    /// Both queues of all partitions; read without locks, so nearly right.
    fn queues(&self) -> Queues {
        let mut sums = Queues::default();
        for id in 0..self.layout.partitions {
            let base = self.partition_at(id);
            let load = |field: usize| self.load(base + field);
            sums.small += load(field::SMALL + GRANULES);
            sums.main += load(field::MAIN + GRANULES);
        }
        sums
    }

    /// True if the small queues together hold more than their share.
    fn small_is_over(&self, queues: &Queues) -> bool {
        let all = queues.small + queues.main;
        queues.small * 100 > all * u64::from(self.layout.params.small_percent)
    }

    /// The queue from which the next entry of the tier should go.
    pub(crate) fn queue_to_judge(&self) -> usize {
        queue_of(!self.small_is_over(&self.queues()))
    }

    /// True if a partition has an entry in the queue that is wanted.
    pub(crate) fn can_give(&self, id: u32, wanted: Option<usize>) -> bool {
        wanted.is_none_or(|queue| self.load(self.partition_at(id) + queue + COUNT) > 0)
    }
}

impl PartitionMut<'_> {
    /// Puts an entry, whose slot names it, at the young end of a queue.
    pub(crate) fn enqueue(&mut self, main: bool, location: u32, granules: u64) {
        let queue = queue_of(main);
        let second = self.field(queue + NEWEST) as u32;
        self.entry(location).set_links(0, second);
        match second {
            0 => self.set_field(queue + OLDEST, u64::from(location)),
            _ => self.entry(second).set_newer(location),
        }
        self.set_field(queue + NEWEST, u64::from(location));
        self.add_field(queue + COUNT, 1);
        self.add_field(queue + GRANULES, granules);
    }

    pub(crate) fn dequeue(&mut self, main: bool, location: u32, granules: u64) {
        let queue = queue_of(main);
        let entry = self.entry(location);
        self.join(queue, entry.newer(), entry.older());
        self.sub_field(queue + COUNT, 1);
        self.sub_field(queue + GRANULES, granules);
    }

    /// Makes two entries neighbours; 0 stands for the end of the queue.
    fn join(&mut self, queue: usize, newer: u32, older: u32) {
        match newer {
            0 => self.set_field(queue + NEWEST, u64::from(older)),
            _ => self.entry(newer).set_older(older),
        }
        match older {
            0 => self.set_field(queue + OLDEST, u64::from(newer)),
            _ => self.entry(older).set_newer(newer),
        }
    }

    /// Puts an entry that was copied to a new location in the place of the old one.
    pub(crate) fn relink(&mut self, main: bool, old: u32, new: u32) {
        let queue = queue_of(main);
        let (newer, older) = (self.entry(old).newer(), self.entry(old).older());
        self.entry(new).set_links(newer, older);
        self.join(queue, newer, new);
        self.join(queue, new, older);
    }

    /// The queue's sizes differ from one entry to its overwrite.
    pub(crate) fn resize_in_queue(&mut self, main: bool, before: u64, after: u64) {
        let at = queue_of(main) + GRANULES;
        self.set_field(at, (self.field(at) + after).saturating_sub(before));
    }

    fn granules(&self) -> u64 {
        self.field(field::SMALL + GRANULES) + self.field(field::MAIN + GRANULES)
    }

    pub(crate) fn entries(&self) -> u64 {
        self.field(field::SMALL + COUNT) + self.field(field::MAIN + COUNT)
    }

    /// Too few entries for a policy of their own: the next that goes is the tier's to choose.
    pub(crate) fn has_few(&self) -> bool {
        self.entries() < FEW && self.region().layout.partitions > 1
    }

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
        let location = self.field(queue_of(main) + OLDEST) as u32;
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

    /// With few entries here (large values) the shares of the whole tier decide: a small queue of three
    /// entries cannot hold five percent.
    fn small_is_over_its_share(&self) -> bool {
        if self.field(field::SMALL + COUNT) == 0 || self.field(field::MAIN + COUNT) == 0 {
            return self.field(field::MAIN + COUNT) == 0;
        }
        let queues = match self.has_few() {
            true => self.region().queues(),
            false => Queues {
                small: self.field(field::SMALL + GRANULES),
                main: self.field(field::MAIN + GRANULES),
            },
        };
        self.region().small_is_over(&queues)
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
        let clock = self.field(field::GHOST_CLOCK);
        self.add_field(field::GHOST_CLOCK, granules);
        self.remove_entry(location, Why::Evicted, Slot::ghost(tag, clock));
    }

    /// A ghost counts while what was evicted after it is less than its share of what the partition holds.
    pub(crate) fn ghost_is_young(&self, slot: Slot) -> bool {
        let share = u64::from(self.region().layout.params.ghost_percent);
        let age = slot.ghost_age(self.field(field::GHOST_CLOCK));
        slot.is_ghost() && u64::from(age) * 100 <= self.granules() * share
    }

    pub(crate) fn set_slot(&mut self, number: u32, slot: Slot) {
        self.region().store(self.slot_at(number), slot.0);
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
            bytes: place.granules() * crate::layout::GRANULE as u64,
            why: Some(why),
        });
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

    /// The slot for a new key, and whether its ghost says it was here a short time ago.
    pub(crate) fn choose_slot(&self, hash: u64) -> Option<(u32, bool)> {
        let aim = self.aim(hash);
        let mut vacant = [(0u32, None); 2];
        let mut oldest: Option<(u32, u32)> = None;
        let clock = self.field(field::GHOST_CLOCK);
        for (place, number) in aim.slots().enumerate() {
            let slot = self.slot(number);
            if slot.is_ghost() && slot.tag() == aim.tag {
                return Some((number, self.ghost_is_young(slot)));
            }
            if slot == Slot::EMPTY || slot.is_ghost() && !self.ghost_is_young(slot) {
                vacant[place / 8].0 += 1;
                vacant[place / 8].1 = Some(number);
            } else if slot.is_ghost() && oldest.is_none_or(|(age, _)| age < slot.ghost_age(clock)) {
                oldest = Some((slot.ghost_age(clock), number));
            }
        }
        // The emptier bucket, which is what lets two choices fill an index to nine tenths.
        let emptier = vacant.into_iter().max_by_key(|(count, _)| *count);
        let number = emptier
            .and_then(|(_, number)| number)
            .or(oldest.map(|(_, number)| number));
        number.map(|number| (number, false))
    }
}

enum Judged {
    Gone,
    Spared,
    Nobody,
}
