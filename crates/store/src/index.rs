//! The index of a partition: 64-byte buckets of eight slots, two candidate buckets for a key.
//!
//! What it is not: it stores no keys; a slot leads to the entry, whose key is compared in full.
//! The rule it guards: the index is never resized and has no chains. A key that finds both of its
//! buckets full of live entries evicts one of them.
//!
//! ```text
//! slot: tag (28 bits) << 36 | ghost << 35 | main queue << 34 | hits (2) << 32 | location (32)
//! ```
//! An empty slot is 0. A ghost remembers a tag that was evicted from the small queue; its low 32 bits are
//! the partition's ghost clock at that moment. Only the hits change under a shared lock.

use core::sync::atomic::Ordering::Relaxed;

use crate::entry::{EntryRef, Key};
use crate::layout::{BUCKET_BYTES, GRANULE};
use crate::partition::{PartitionMut, PartitionRef};
use crate::region::Region;

pub const SLOTS: u32 = 8;
const HITS: u64 = 1 << 32;
const MAIN: u64 = 1 << 34;
const GHOST_SHIFT: u32 = 35;
const GHOST: u64 = 1 << GHOST_SHIFT;
const TAG_SHIFT: u32 = 36;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(pub u64);

impl Slot {
    pub const EMPTY: Slot = Slot(0);

    #[inline]
    pub fn live(tag: u64, main: bool, hits: u32, location: u32) -> Slot {
        let queue = if main { MAIN } else { 0 };
        Slot(tag << TAG_SHIFT | queue | u64::from(hits.min(3)) << 32 | u64::from(location))
    }

    #[inline]
    pub fn ghost(tag: u64, clock: u64) -> Slot {
        Slot(tag << TAG_SHIFT | GHOST | clock & 0xFFFF_FFFF)
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
        self.0 & MAIN != 0
    }

    #[inline]
    pub fn hits(self) -> u32 {
        (self.0 >> 32 & 3) as u32
    }

    /// How much the entry is used: its queue, then its hits. 0 to 7.
    pub fn worth(self) -> u32 {
        u32::from(self.in_main()) * 4 + self.hits()
    }

    #[inline]
    pub fn location(self) -> u32 {
        self.0 as u32
    }

    /// Moments of the ghost clock since this ghost was made; the clock may have wrapped.
    pub fn ghost_age(self, clock: u64) -> u32 {
        (clock as u32).wrapping_sub(self.0 as u32)
    }
}

/// Where a hash points in its partition.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    pub tag: u64,
    pub buckets: [u32; 2],
}

impl Aim {
    /// The top bits chose the partition, so the tag is taken from the middle; the second bucket comes
    /// from a remix, so that two keys that share one bucket rarely share both.
    #[inline]
    pub fn new(hash: u64, buckets: u32) -> Aim {
        let first = reduce(hash as u32, buckets);
        let mixed = (hash ^ hash >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let second = reduce((mixed >> 32) as u32, buckets);
        let second = match second == first {
            true => (first + 1) % buckets,
            false => second,
        };
        Aim {
            tag: hash >> 28 & 0xFFF_FFFF,
            buckets: [first, second],
        }
    }

    /// The sixteen slots, first bucket first.
    pub fn slots(&self) -> impl Iterator<Item = u32> + use<> {
        let [first, second] = self.buckets;
        (first * SLOTS..(first + 1) * SLOTS).chain(second * SLOTS..(second + 1) * SLOTS)
    }
}

/// Which of a bucket's slots have this tag and are no ghosts, one bit each; without a branch a slot. An empty
/// slot looks like one of tag 0.
#[inline]
fn with_tag(tag: u64, slots: &[u64; 8]) -> u32 {
    let wanted = tag << 1; // the ghost bit, below the tag, is 0
    slots.iter().enumerate().fold(0, |named, (at, slot)| {
        named | u32::from(slot >> GHOST_SHIFT == wanted) << at
    })
}

#[inline]
fn reduce(bits: u32, buckets: u32) -> u32 {
    ((u64::from(bits) * u64::from(buckets)) >> 32) as u32
}

impl<'r> PartitionRef<'r> {
    #[inline]
    pub(crate) fn aim(&self, hash: u64) -> Aim {
        Aim::new(hash, self.region().layout.buckets)
    }

    #[inline]
    pub(crate) fn slot_count(&self) -> u32 {
        self.region().layout.buckets * SLOTS
    }

    #[inline]
    pub(crate) fn slot_at(&self, slot: u32) -> usize {
        match slot < self.slot_count() {
            true => self.region().buckets_at(self.id()) + slot as usize * 8,
            false => usize::MAX,
        }
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u32) -> Slot {
        Slot(self.region().load(self.slot_at(slot)))
    }

    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<(u32, EntryRef<'r>)> {
        let aim = self.aim(key.hash);
        // Half of all keys are in the second bucket: its line is asked for before the first is read.
        self.region().prefetch(self.slot_at(aim.buckets[1] * SLOTS));
        aim.buckets
            .iter()
            .find_map(|&bucket| self.find_in(bucket, aim.tag, key))
    }

    #[inline]
    fn find_in(&self, bucket: u32, tag: u64, key: &Key) -> Option<(u32, EntryRef<'r>)> {
        let slots = self.region().line(self.slot_at(bucket * SLOTS));
        let mut named = with_tag(tag, &slots);
        while named != 0 {
            let at = named.trailing_zeros();
            named &= named - 1;
            let location = Slot(slots[at as usize & 7]).location();
            self.region().prefetch((location as usize + 1) * GRANULE);
            let entry = EntryRef::new(self.region(), location);
            if location != 0 && entry.is(key) {
                return Some((bucket * SLOTS + at, entry));
            }
        }
        None
    }

    /// Counts a hit, up to three. A lost race loses a count, never a neighbouring bit: hence no add.
    #[inline]
    pub(crate) fn count_hit(&self, number: u32) {
        let word = self.region().word(self.slot_at(number));
        let seen = word.load(Relaxed);
        if Slot(seen).hits() < 3 {
            let _ = word.compare_exchange(seen, seen + HITS, Relaxed, Relaxed);
        }
    }
}

impl PartitionMut<'_> {
    pub(crate) fn set_slot(&mut self, number: u32, slot: Slot) {
        self.region().store(self.slot_at(number), slot.0);
    }
}

impl Region {
    /// First step of a batch look-up. Needs no lock: it reads nothing.
    #[inline]
    pub fn prefetch_buckets(&self, hash: u64) {
        let base = self.buckets_at(self.partition_of(hash));
        for bucket in Aim::new(hash, self.layout.buckets).buckets {
            self.prefetch(base + bucket as usize * BUCKET_BYTES);
        }
    }

    /// Second step: follows the buckets to the entry's first cache lines. Needs no lock: slots are
    /// atomics, and a location that is out of date costs a useless prefetch.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) {
        let base = self.buckets_at(self.partition_of(hash));
        let aim = Aim::new(hash, self.layout.buckets);
        for bucket in aim.buckets {
            let slots = self.line(base + bucket as usize * BUCKET_BYTES);
            let mut named = with_tag(aim.tag, &slots);
            while named != 0 {
                let slot = Slot(slots[named.trailing_zeros() as usize & 7]);
                named &= named - 1;
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
            let aim = Aim::new(crate::check::testing::mix(i), 1000);
            assert_ne!(aim.buckets[0], aim.buckets[1]);
            aim.buckets
                .iter()
                .for_each(|bucket| counts[*bucket as usize] += 1);
        }
        assert!(counts.iter().all(|count| (120..280).contains(count)));
    }

    #[test]
    fn hits_saturate_without_touching_the_queue_bit() {
        let slot = Slot::live(0xFFF_FFFF, false, 9, u32::MAX);
        assert_eq!(
            (slot.hits(), slot.in_main(), slot.is_live()),
            (3, false, true)
        );
        assert_eq!((slot.tag(), slot.location()), (0xFFF_FFFF, u32::MAX));
        assert!(Slot::ghost(0, 0).is_ghost() && !Slot::ghost(0, 0).is_live());
    }
}
