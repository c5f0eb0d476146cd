//! Walks over all entries of a slot: one partition at a time, in short steps, so that no session waits long for a
//! lock.

use std::collections::BinaryHeap;
use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::{Cursor, EntryRef, Header, MAX_KEY, RemovalCause, Verdict};

use super::io;
use crate::pg::memory;
use crate::pg::session;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::shmem::tier::Tier;

/// The number of index slots of the store that one step visits under the lock.
const STEP: u32 = 512;

/// Removes the entries of a slot for which `judge` returns true, and returns their number. Can be cancelled between
/// two steps, except at the end of a transaction, where interrupts are held off.
pub fn remove_entries(
    tier: &Tier,
    slot: u32,
    why: RemovalCause,
    judge: impl Fn(&EntryRef) -> bool,
) -> u64 {
    let mut removed = 0;
    for partition in 0..tier.partitions() {
        let mut cursor = Cursor::default();
        let mut done = false;
        while !done {
            let swept = tier.change(partition, |partition| {
                partition.sweep(&mut cursor, STEP, |entry| {
                    match entry.header().cache == slot && judge(entry) {
                        true => Verdict::Remove(why),
                        false => Verdict::Keep,
                    }
                })
            });
            removed += u64::from(swept.removed);
            done = swept.done;
            session::check_for_interrupts();
        }
    }
    removed
}

/// Removes the expired entries of several slots in one walk over a partition. Each slot comes with the deadline up to
/// which its entries have expired.
pub fn expire_partition(tier: &Tier, partition: u32, limits: &[(u32, Timestamp)]) {
    let mut cursor = Cursor::default();
    let limit_of = |slot: u32| limits.iter().find(|limit| limit.0 == slot);
    let mut done = false;
    while !done {
        done = tier.change(partition, |partition| {
            let judge = |entry: &EntryRef| {
                let header = entry.header();
                match limit_of(header.cache) {
                    Some(limit) if header.deadline <= limit.1 => {
                        Verdict::Remove(RemovalCause::Expired)
                    }
                    _ => Verdict::Keep,
                }
            };
            partition.sweep(&mut cursor, STEP, judge).done
        });
    }
}

/// Returns the sparse pages of a partition to the tier. Takes the lock anew for each page, and moves at most 64 runs, 4
/// kB together, while it holds the lock. Stops when `goes_on` returns false. Returns true if it stopped before the
/// partition was done.
pub fn compact_partition(tier: &Tier, partition: u32, goes_on: impl Fn() -> bool) -> bool {
    let mut has_holes = tier.read_at(partition, |partition| partition.has_holes());
    while has_holes {
        if !goes_on() {
            return true;
        }
        has_holes = tier.change(partition, |partition| partition.compact());
    }
    false
}

/// The largest weight of a removed entry, in multiples of the weight that is left to remove; the steps are tried in
/// this order. Among equally used entries, light ones are removed first, because a heavy entry may free much more than
/// is needed.
const SLACK: [u64; 4] = [1, 4, 16, u64::MAX];

/// Removes the least used entries of a slot, spread over all partitions, until the weight of the removed entries
/// reaches about `excess`. `weight` returns the weight of an entry: 1, or its bytes.
pub fn remove_least_used(
    tier: &Tier,
    slot: u32,
    excess: i64,
    weight: impl Fn(&EntryRef) -> u64 + Copy,
) {
    let mut excess = u64::try_from(excess).unwrap_or(0);
    for most_used in [0, 1, 2, 3, 4, 5, 6, 7] {
        for slack in SLACK {
            let mut passed_over = false;
            for partition in 0..tier.partitions() {
                if excess == 0 {
                    return;
                }
                // Each partition removes an equal share of the rest, because the hash of the keys spreads the entries
                // evenly.
                let share = excess.div_ceil(u64::from(tier.partitions() - partition));
                let mut trim = Trim {
                    slot,
                    most_used,
                    most: share,
                    slack,
                    removed: 0,
                    passed_over: false,
                };
                trim.run(tier, partition, weight);
                excess = excess.saturating_sub(trim.removed);
                passed_over |= trim.passed_over;
            }
            session::check_for_interrupts();
            if !passed_over {
                break;
            }
        }
    }
}

/// A walk over one partition that removes the least used entries of a slot.
struct Trim {
    slot: u32,
    most_used: u32,
    /// The weight to remove.
    most: u64,
    slack: u64,
    removed: u64,
    /// Whether some entry was kept only because it is too heavy for this `slack`.
    passed_over: bool,
}

impl Trim {
    fn run(&mut self, tier: &Tier, partition: u32, weight: impl Fn(&EntryRef) -> u64) {
        let mut cursor = Cursor::default();
        let mut done = false;
        while !done && self.removed < self.most {
            done = tier.change(partition, |partition| {
                let judge = |entry: &EntryRef, used| self.judge(entry, used, &weight);
                partition.sweep_by_use(&mut cursor, STEP, judge).done
            });
        }
    }

    fn judge(&mut self, entry: &EntryRef, used: u32, weight: impl Fn(&EntryRef) -> u64) -> Verdict {
        let left = self.most.saturating_sub(self.removed);
        if left == 0 || used > self.most_used || entry.header().cache != self.slot {
            return Verdict::Keep;
        }
        let weight = weight(entry);
        if weight > left.saturating_mul(self.slack) {
            self.passed_over = true;
            return Verdict::Keep;
        }
        self.removed += weight;
        Verdict::Remove(RemovalCause::Evicted)
    }
}

/// A position in a walk over the whole tier, as a number that a caller can keep, because index slots of the store do
/// not move while the server runs. A walk begins at 0, and is complete when it returns to 0.
pub type Place = u64;

/// Takes one step of a walk and returns the next position. Calls `visit` under the partition's lock for the entries of
/// the next index slots, until it returns false.
pub fn look_on(tier: &Tier, place: Place, mut visit: impl FnMut(&EntryRef) -> bool) -> Place {
    step(tier, place, |partition, cursor| {
        tier.read_at(partition, |partition| {
            partition.scan(cursor, STEP, &mut visit)
        })
    })
}

/// Takes one step of a walk that removes the entries of a slot for which `judge` returns true. Returns the next
/// position.
pub fn remove_on(
    tier: &Tier,
    slot: u32,
    place: Place,
    why: RemovalCause,
    judge: impl Fn(&EntryRef) -> bool,
) -> Place {
    step(tier, place, |partition, cursor| {
        let judge = |entry: &EntryRef| match entry.header().cache == slot && judge(entry) {
            true => Verdict::Remove(why),
            false => Verdict::Keep,
        };
        tier.change(partition, |partition| {
            partition.sweep(cursor, STEP, judge).done
        })
    })
}

/// Returns the number of positions in a walk.
pub fn places(tier: &Tier) -> u64 {
    u64::from(tier.partitions()) * u64::from(tier.region().layout().slots())
}

/// Takes one step and returns the next position. A position that no step has returned counts as the end.
fn step(tier: &Tier, place: Place, walk: impl FnOnce(u32, &mut Cursor) -> bool) -> Place {
    let slots = u64::from(tier.region().layout().slots());
    let (Some(partition), Some(slot)) = (place.checked_div(slots), place.checked_rem(slots)) else {
        return 0;
    };
    let Some(partition) = u32::try_from(partition)
        .ok()
        .filter(|&partition| partition < tier.partitions())
    else {
        return 0;
    };
    let mut cursor = Cursor::at(slot as u32);
    let next = match walk(partition, &mut cursor) {
        true => (u64::from(partition) + 1) * slots,
        false => u64::from(partition) * slots + u64::from(cursor.slot()),
    };
    if next < places(tier) { next } else { 0 }
}

/// Calls `visit` for the keys of all live entries of a slot, in no order and without a lock. Keys are copied under the
/// locks into memory that was reserved before.
pub fn each_key(tier: &Tier, slot: u32, visit: impl FnMut(&[u8])) {
    let version = tier.slot(slot).version.load(SeqCst);
    let now = clock::now();
    each_key_of(
        tier,
        slot,
        |header| header.version == version && io::is_live(header, now),
        visit,
    );
}

/// Returns the first `max` keys in key order whose entries have a deadline of at most `limit`.
pub fn expired_keys(tier: &Tier, slot: u32, limit: i64, max: usize) -> Vec<Vec<u8>> {
    let mut least: BinaryHeap<Vec<u8>> = BinaryHeap::new();
    let expired = |header: &Header| header.deadline <= limit;
    each_key_of(tier, slot, expired, |key| keep_least(&mut least, key, max));
    least.into_sorted_vec()
}

fn each_key_of(
    tier: &Tier,
    slot: u32,
    counts: impl Fn(&Header) -> bool,
    mut visit: impl FnMut(&[u8]),
) {
    let mut found = Keys::new(slot);
    for partition in 0..tier.partitions() {
        each_key_in(tier, partition, &mut found, &counts, &mut visit);
    }
}

fn each_key_in(
    tier: &Tier,
    partition: u32,
    found: &mut Keys,
    counts: impl Fn(&Header) -> bool,
    mut visit: impl FnMut(&[u8]),
) {
    let mut cursor = Cursor::default();
    let mut done = false;
    while !done {
        done = tier.read_at(partition, |partition| {
            partition.scan(&mut cursor, STEP, |entry| found.take(entry, &counts))
        });
        found.hand_over(&mut visit);
        session::check_for_interrupts();
    }
}

/// The keys of a slot that a session has visited, so that it can later visit only new keys, without another walk.
pub struct Met {
    slot: u32,
    /// For each partition, the number of keys that had been inserted at the last visit.
    inserted: Vec<u64>,
}

impl Met {
    /// Visits all keys of the slot, live or not, in no order. Calls `visit` without a lock.
    pub fn all(tier: &Tier, slot: u32, mut visit: impl FnMut(&[u8])) -> Met {
        let mut met = Met {
            slot,
            inserted: memory::collect((0..tier.partitions()).map(|_| 0)),
        };
        let mut found = Keys::new(slot);
        for partition in 0..tier.partitions() {
            met.walk(tier, partition, &mut found, &mut visit);
        }
        met
    }

    /// Returns the slot that was walked.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Visits the keys that were inserted since the last visit, and maybe other keys once more. Costs nothing if no
    /// key was inserted.
    pub fn follow(&mut self, tier: &Tier, mut visit: impl FnMut(&[u8])) {
        let mut found = None;
        for partition in 0..tier.partitions() {
            let place = partition as usize;
            if tier.region().inserted(partition) != self.inserted[place] {
                let found = found.get_or_insert_with(|| Keys::new(self.slot));
                if !self.follow_in(tier, partition, found, &mut visit) {
                    self.walk(tier, partition, found, &mut visit);
                }
            }
        }
    }

    /// Visits the new keys of a partition with the help of its journal. Returns false if more keys were inserted than
    /// the journal keeps.
    fn follow_in(
        &mut self,
        tier: &Tier,
        partition: u32,
        found: &mut Keys,
        visit: &mut impl FnMut(&[u8]),
    ) -> bool {
        let seen = &mut self.inserted[partition as usize];
        loop {
            let step = tier.read_at(partition, |partition| {
                partition.follow(seen, |entry| found.take(entry, |_| true))
            });
            found.hand_over(&mut *visit);
            session::check_for_interrupts();
            match step {
                None => return false,
                Some(true) => return true,
                Some(false) => {}
            }
        }
    }

    fn walk(
        &mut self,
        tier: &Tier,
        partition: u32,
        found: &mut Keys,
        visit: &mut impl FnMut(&[u8]),
    ) {
        // Read before the walk, because the journal contains the keys that are inserted behind the walk.
        self.inserted[partition as usize] =
            tier.read_at(partition, |partition| partition.inserted());
        each_key_in(tier, partition, found, |_| true, visit);
    }
}

/// Keys of a slot that are copied out of the tier. They are copied under a lock into memory that was reserved before,
/// and passed on without the lock.
struct Keys {
    slot: u32,
    copied: Vec<u8>,
}

impl Keys {
    fn new(slot: u32) -> Keys {
        Keys {
            slot,
            copied: memory::list(64 * 1024),
        }
    }

    /// Copies the key of an entry that counts. Returns whether there is room for another key.
    fn take(&mut self, entry: &EntryRef, counts: impl Fn(&Header) -> bool) -> bool {
        let header = entry.header();
        if header.cache == self.slot && counts(&header) {
            push_key(&mut self.copied, entry);
        }
        self.copied.capacity() - self.copied.len() > MAX_KEY + 4
    }

    fn hand_over(&mut self, mut visit: impl FnMut(&[u8])) {
        let mut rest = &self.copied[..];
        while let Some((key, others)) = first_key(rest) {
            visit(key);
            rest = others;
        }
        self.copied.clear();
    }
}

/// Returns the number of live entries of a slot's current content.
pub fn count_live(tier: &Tier, slot: u32) -> u64 {
    let version = tier.slot(slot).version.load(SeqCst);
    let mut live = 0;
    for partition in 0..tier.partitions() {
        let mut cursor = Cursor::default();
        let mut done = false;
        while !done {
            let now = clock::now();
            done = tier.read_at(partition, |partition| {
                partition.scan(&mut cursor, STEP, |entry| {
                    let header = entry.header();
                    let counts = header.cache == slot
                        && header.version == version
                        && io::is_live(&header, now);
                    live += u64::from(counts);
                    true
                })
            });
            session::check_for_interrupts();
        }
    }
    live
}

/// Returns the first `max` live keys for which `counts` returns true, in key order.
pub fn least_keys(
    tier: &Tier,
    slot: u32,
    max: usize,
    counts: impl Fn(&[u8]) -> bool,
) -> Vec<Vec<u8>> {
    let mut least: BinaryHeap<Vec<u8>> = BinaryHeap::new();
    each_key(tier, slot, |key| {
        if counts(key) {
            keep_least(&mut least, key, max);
        }
    });
    least.into_sorted_vec()
}

/// Appends the length and the bytes of a key. The caller has checked that the longest key fits.
fn push_key(found: &mut Vec<u8>, entry: &EntryRef) {
    let length = entry.header().key_len;
    let at = found.len() + 4;
    found.extend_from_slice(&length.to_le_bytes());
    found.resize(at + length as usize, 0);
    entry.copy_key(&mut found[at..]);
}

/// Returns the first key that [`push_key`] has appended, and the rest.
fn first_key(found: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = found.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// Adds a key to the heap, which keeps the first `max` keys in key order.
fn keep_least(least: &mut BinaryHeap<Vec<u8>>, key: &[u8], max: usize) {
    if least.len() >= max {
        if least.peek().is_none_or(|largest| key >= &largest[..]) {
            return;
        }
        least.pop();
    }
    if least.try_reserve(1).is_err() {
        memory::exhausted(least.len() * 2 * size_of::<Vec<u8>>());
    }
    least.push(memory::copy(key));
}
