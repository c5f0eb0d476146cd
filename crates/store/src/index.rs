//! The index of a partition: a hash table of 64-byte buckets with eight slots each, and two candidate buckets for
//! each key.
//!
//! The index stores no keys: a slot leads to the entry, and a lookup compares the entry's key in full. The index is
//! never resized and has no chains, so its cost is bounded. A key that finds both of its buckets full of live entries
//! evicts one of them. Buckets of one cache line with a tag in each slot come from MemC3 (Fan, Andersen, Kaminsky, NSDI
//! 2013). Unlike in MemC3, an entry never moves to its other bucket, so that a walk over the slots meets each entry
//! once.
//!
//! ```text
//! slot: tag (28 bits) << 36 | ghost << 35 | main queue << 34 | hits (2) << 32 | location (32)
//! ```
//! An empty slot is 0. A ghost remembers the tag of an entry that was evicted from the small queue; its low 32 bits are
//! the partition's ghost clock at the time of the eviction. Under a shared lock, only the hits change.

use core::sync::atomic::Ordering::Relaxed;

use crate::entry::{EntryRef, Key};
use crate::layout::{BUCKET_BYTES, GRANULE};
use crate::partition::{PartitionMut, PartitionRef};
use crate::region::Region;

pub const SLOTS_PER_BUCKET: u32 = 8;
const ONE_HIT: u64 = 1 << 32;
const MAIN_QUEUE: u64 = 1 << 34;
const GHOST_SHIFT: u32 = 35;
const GHOST: u64 = 1 << GHOST_SHIFT;
const TAG_SHIFT: u32 = 36;

/// A word of the index: an entry, a ghost, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexSlot(pub u64);

impl IndexSlot {
    pub const EMPTY: IndexSlot = IndexSlot(0);

    #[inline]
    pub fn live(tag: u64, main: bool, hits: u32, location: u32) -> IndexSlot {
        let queue = if main { MAIN_QUEUE } else { 0 };
        IndexSlot(tag << TAG_SHIFT | queue | u64::from(hits.min(3)) << 32 | u64::from(location))
    }

    #[inline]
    pub fn ghost(tag: u64, clock: u64) -> IndexSlot {
        IndexSlot(tag << TAG_SHIFT | GHOST | clock & 0xFFFF_FFFF)
    }

    #[inline]
    pub fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    #[inline]
    pub fn is_live(self) -> bool {
        self.0 != 0 && self.0 & GHOST == 0
    }

    pub fn is_ghost(self) -> bool {
        self.0 & GHOST != 0
    }

    pub fn in_main(self) -> bool {
        self.0 & MAIN_QUEUE != 0
    }

    #[inline]
    pub fn hits(self) -> u32 {
        (self.0 >> 32 & 3) as u32
    }

    /// Returns a measure of the entry's use, 0 to 7. The queue counts first, then the hits.
    pub fn use_rank(self) -> u32 {
        u32::from(self.in_main()) * 4 + self.hits()
    }

    #[inline]
    pub fn location(self) -> u32 {
        self.0 as u32
    }

    /// Returns the granules evicted since this ghost was created; correct even if the clock has wrapped.
    pub fn ghost_age(self, clock: u64) -> u32 {
        (clock as u32).wrapping_sub(self.0 as u32)
    }
}

/// The tag and the two buckets of a key, which its hash determines. A lookup searches only these buckets.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    pub tag: u64,
    pub buckets: [u32; 2],
}

impl Probe {
    /// Computes the tag and the buckets. The hash's top bits have chosen the partition, so the tag comes from the
    /// middle bits. The second bucket comes from another mix of the bits (a step of SplitMix64), so that two keys that
    /// share one bucket rarely share both.
    #[inline]
    pub fn new(hash: u64, buckets: u32) -> Probe {
        let first = reduce(hash as u32, buckets);
        let mixed = (hash ^ hash >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let second = reduce((mixed >> 32) as u32, buckets);
        let second = match second == first {
            true => (first + 1) % buckets,
            false => second,
        };
        Probe {
            tag: hash >> 28 & 0xFFF_FFFF,
            buckets: [first, second],
        }
    }

    /// Returns the numbers of the sixteen slots, beginning with the first bucket.
    pub fn slots(&self) -> impl Iterator<Item = u32> + use<> {
        let [first, second] = self.buckets;
        (first * SLOTS_PER_BUCKET..(first + 1) * SLOTS_PER_BUCKET)
            .chain(second * SLOTS_PER_BUCKET..(second + 1) * SLOTS_PER_BUCKET)
    }
}

/// Returns a bit mask of the slots of a bucket that have this tag and are not ghosts, without a branch for each slot.
/// The function does not distinguish an empty slot from a slot with tag 0.
#[inline]
fn slots_with_tag(tag: u64, slots: &[u64; 8]) -> u32 {
    let wanted = tag << 1; // the ghost bit, below the tag, is 0
    slots.iter().enumerate().fold(0, |matching, (at, slot)| {
        matching | u32::from(slot >> GHOST_SHIFT == wanted) << at
    })
}

/// Maps 32 uniform bits to 0..buckets without a division (Lemire, "Fast random integer generation
/// in an interval", 2019).
#[inline]
fn reduce(bits: u32, buckets: u32) -> u32 {
    ((u64::from(bits) * u64::from(buckets)) >> 32) as u32
}

impl<'r> PartitionRef<'r> {
    #[inline]
    pub(crate) fn probe(&self, hash: u64) -> Probe {
        Probe::new(hash, self.region().layout.buckets)
    }

    #[inline]
    pub(crate) fn slot_count(&self) -> u32 {
        self.region().layout.buckets * SLOTS_PER_BUCKET
    }

    #[inline]
    pub(crate) fn slot_at(&self, slot: u32) -> usize {
        match slot < self.slot_count() {
            true => self.region().buckets_at(self.id()) + slot as usize * 8,
            false => usize::MAX,
        }
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> IndexSlot {
        IndexSlot(self.region().load(self.slot_at(slot)))
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<(u32, EntryRef<'r>)> {
        let probe = self.probe(key.hash);
        // Half of all keys are in the second bucket, so the lookup prefetches its line before it reads the first
        // bucket.
        self.region()
            .prefetch(self.slot_at(probe.buckets[1] * SLOTS_PER_BUCKET));
        probe
            .buckets
            .iter()
            .find_map(|&bucket| self.find_in(bucket, probe.tag, key))
    }

    #[inline]
    fn find_in(&self, bucket: u32, tag: u64, key: &Key) -> Option<(u32, EntryRef<'r>)> {
        let slots = self.region().line(self.slot_at(bucket * SLOTS_PER_BUCKET));
        let mut matching = slots_with_tag(tag, &slots);
        while matching != 0 {
            let at = matching.trailing_zeros();
            matching &= matching - 1;
            let location = IndexSlot(slots[at as usize & 7]).location();
            self.region().prefetch((location as usize + 1) * GRANULE);
            let entry = EntryRef::new(self.region(), location);
            if location != 0 && entry.matches(key) {
                return Some((bucket * SLOTS_PER_BUCKET + at, entry));
            }
        }
        None
    }

    /// Counts a hit, up to three. A race can lose a count but never changes a neighbouring bit, so the count needs no
    /// atomic add.
    #[inline]
    pub(crate) fn count_hit(&self, number: u32) {
        let word = self.region().word(self.slot_at(number));
        let seen = word.load(Relaxed);
        if IndexSlot(seen).hits() < 3 {
            let _ = word.compare_exchange(seen, seen + ONE_HIT, Relaxed, Relaxed);
        }
    }
}

impl PartitionMut<'_> {
    pub(crate) fn set_slot(&mut self, number: u32, slot: IndexSlot) {
        self.region().store(self.slot_at(number), slot.0);
    }
}

impl Region {
    /// Prefetches the buckets of a hash, the first step of a batch lookup. Needs no lock, because it reads no memory.
    #[inline]
    pub fn prefetch_buckets(&self, hash: u64) {
        let base = self.buckets_at(self.partition_of(hash));
        for bucket in Probe::new(hash, self.layout.buckets).buckets {
            self.prefetch(base + bucket as usize * BUCKET_BYTES);
        }
    }

    /// Prefetches the first cache lines of the entry, the second step of a batch lookup. Needs no lock: slots are
    /// atomics, and an outdated location costs only a useless prefetch.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) {
        let base = self.buckets_at(self.partition_of(hash));
        let probe = Probe::new(hash, self.layout.buckets);
        for bucket in probe.buckets {
            let slots = self.line(base + bucket as usize * BUCKET_BYTES);
            let mut matching = slots_with_tag(probe.tag, &slots);
            while matching != 0 {
                let slot = IndexSlot(slots[matching.trailing_zeros() as usize & 7]);
                matching &= matching - 1;
                let at = slot.location() as usize * GRANULE;
                self.prefetch(at);
                self.prefetch(at + GRANULE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "arithmetic over 100,000 keys; no memory is touched")]
    fn the_two_buckets_of_a_key_differ_and_spread_evenly() {
        let mut counts = [0u32; 1000];
        for i in 1..100_000u64 {
            let probe = Probe::new(crate::check::testing::mix(i), 1000);
            assert_ne!(probe.buckets[0], probe.buckets[1]);
            probe
                .buckets
                .iter()
                .for_each(|bucket| counts[*bucket as usize] += 1);
        }
        assert!(counts.iter().all(|count| (120..280).contains(count)));
    }

    #[test]
    fn hits_saturate_without_touching_the_queue_bit() {
        let slot = IndexSlot::live(0xFFF_FFFF, false, 9, u32::MAX);
        assert_eq!(
            (slot.hits(), slot.in_main(), slot.is_live()),
            (3, false, true)
        );
        assert_eq!((slot.tag(), slot.location()), (0xFFF_FFFF, u32::MAX));
        assert!(IndexSlot::ghost(0, 0).is_ghost() && !IndexSlot::ghost(0, 0).is_live());
    }
}
