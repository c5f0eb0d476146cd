//! Walks over all entries of a slot: one partition at a time, each in short steps, so that nobody
//! waits long for a lock.

use std::collections::BinaryHeap;
use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::{Cursor, EntryRef, Header, MAX_KEY, RemovalCause, Verdict};

use super::io;
use crate::pg::memory;
use crate::pg::session;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::shmem::tier::Tier;

/// Slots of the store's index that are looked at under one lock.
const STEP: u32 = 512;

/// Removes the entries of a slot that `judge` names; how many. Can be cancelled between two steps,
/// except at the end of a transaction, where interrupts are held off.
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

/// Removes expired entries of several slots in one walk over a partition, each up to its deadline.
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

/// Removes about `excess` entries of a slot, those that are used least, spread over all partitions.
pub fn remove_least_used(tier: &Tier, slot: u32, excess: i64) {
    let mut excess = u64::try_from(excess).unwrap_or(0);
    for most_used in [0, 1, 2, 3, 4, 5, 6, 7] {
        for partition in 0..tier.partitions() {
            // What is left, in equal shares: the keys' hash spreads the entries evenly.
            let share = excess.div_ceil(u64::from(tier.partitions() - partition));
            excess -= remove_used_up_to(tier, partition, slot, most_used, share);
            if excess == 0 {
                return;
            }
        }
        session::check_for_interrupts();
    }
}

fn remove_used_up_to(tier: &Tier, partition: u32, slot: u32, most_used: u32, most: u64) -> u64 {
    let mut removed = 0;
    let mut cursor = Cursor::default();
    let mut done = most == 0;
    while !done {
        done = tier.change(partition, |partition| {
            let judge = |entry: &EntryRef, used: u32| {
                if removed >= most || used > most_used || entry.header().cache != slot {
                    return Verdict::Keep;
                }
                removed += 1;
                Verdict::Remove(RemovalCause::Evicted)
            };
            partition.sweep_by_use(&mut cursor, STEP, judge).done
        });
        done |= removed >= most;
    }
    removed
}

/// Calls `visit` for the keys of all live entries, in no order, while no lock is held. Keys are
/// copied under the locks into memory that was reserved before.
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

/// The least `max` keys of entries whose deadline is not after `limit`.
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
    let mut found = memory::list(64 * 1024);
    for partition in 0..tier.partitions() {
        let mut cursor = Cursor::default();
        let mut done = false;
        while !done {
            found.clear();
            done = tier.read_at(partition, |partition| {
                partition.scan(&mut cursor, STEP, |entry| {
                    let header = entry.header();
                    if header.cache == slot && counts(&header) {
                        push_key(&mut found, entry);
                    }
                    found.capacity() - found.len() > MAX_KEY + 4
                })
            });
            let mut rest = &found[..];
            while let Some((key, others)) = first_key(rest) {
                visit(key);
                rest = others;
            }
            session::check_for_interrupts();
        }
    }
}

/// The least `max` live keys of which `counts` says yes, in order.
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

/// Appends a key's length and bytes; there is room for the longest.
fn push_key(found: &mut Vec<u8>, entry: &EntryRef) {
    let length = entry.header().key_len;
    let at = found.len() + 4;
    found.extend_from_slice(&length.to_le_bytes());
    found.resize(at + length as usize, 0);
    entry.copy_key(&mut found[at..]);
}

/// The first key of what `push_key` has appended, and the rest.
fn first_key(found: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = found.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// Takes a key into the heap, which never holds more than `max`.
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
