//! Tests that a walk over a partition, followed by its journal, misses no new key.

use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use super::testing::{Memory, hash, mix};
use crate::layout::JOURNAL_PLACES;
use crate::{Cursor, EntryRef, Key, NO_DEADLINE, NewEntry, PartitionMut, RemovalCause};

fn with<T>(memory: &Memory, act: impl FnOnce(&mut PartitionMut) -> T) -> T {
    let mut ledger = |_| {};
    // SAFETY: one thread, one `PartitionMut` at a time.
    act(&mut unsafe { memory.region.partition_mut(0, &mut ledger) })
}

fn on_key<T>(memory: &Memory, number: u64, act: impl FnOnce(&mut PartitionMut, &Key) -> T) -> T {
    let bytes = &number.to_le_bytes();
    let key = Key {
        hash: hash(1, bytes),
        cache: 1,
        bytes,
    };
    with(memory, |partition| act(partition, &key))
}

fn set(memory: &Memory, number: u64, len: usize) {
    let value = vec![7; len];
    let new = NewEntry {
        version: 1,
        deadline: NO_DEADLINE,
        kind: 0,
        negative: false,
        value: &value,
    };
    on_key(memory, number, |partition, key| {
        partition.set(key, &new, 0, &mut memory.region.grant())
    });
}

fn number_of(entry: &EntryRef) -> u64 {
    let mut bytes = [0; 8];
    entry.copy_key(&mut bytes);
    u64::from_le_bytes(bytes)
}

fn followed(memory: &Memory, seen: &mut u64) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    let all = with(memory, |partition| {
        partition.follow(seen, |entry| {
            found.push(number_of(entry));
            true
        })
    });
    all.map(|all| {
        assert!(all, "nothing has ended the step");
        found
    })
}

#[test]
fn new_keys_are_followed_and_overwrites_are_not() {
    let memory = Memory::new(1 << 20, 1);
    set(&memory, 1, 10);
    let mut seen = with(&memory, |partition| partition.inserted());
    set(&memory, 1, 20); // overwritten in place
    set(&memory, 1, 3_000); // moved to other memory, but keeps its slot
    assert_eq!(followed(&memory, &mut seen), Some(vec![]));
    set(&memory, 2, 10);
    set(&memory, 3, 10);
    on_key(&memory, 2, |partition, key| {
        partition.remove(key, RemovalCause::Cleared)
    });
    assert_eq!(followed(&memory, &mut seen), Some(vec![3]));
    assert_eq!(followed(&memory, &mut seen), Some(vec![]));
    assert_eq!(seen, memory.region.inserted(0));
}

#[test]
fn a_visit_can_end_a_step_and_the_next_continues() {
    let memory = Memory::new(1 << 20, 1);
    (1..=5).for_each(|number| set(&memory, number, 10));
    let (mut seen, mut found) = (0, Vec::new());
    let step = |seen: &mut u64, found: &mut Vec<u64>| {
        with(&memory, |partition| {
            partition.follow(seen, |entry| {
                found.push(number_of(entry));
                found.len() % 2 == 1
            })
        })
    };
    assert_eq!(step(&mut seen, &mut found), Some(false));
    assert_eq!(step(&mut seen, &mut found), Some(false));
    assert_eq!(step(&mut seen, &mut found), Some(true));
    assert_eq!(found, [1, 2, 3, 4, 5]);
}

#[test]
fn a_journal_that_is_too_short_says_so() {
    let memory = Memory::new(1 << 20, 1);
    let mut seen = 0;
    (0..JOURNAL_PLACES).for_each(|number| set(&memory, number, 10));
    assert_eq!(
        followed(&memory, &mut seen.clone()).map(|found| found.len() as u64),
        Some(JOURNAL_PLACES)
    );
    set(&memory, JOURNAL_PLACES, 10);
    assert_eq!(followed(&memory, &mut seen), None);
}

/// Under constant eviction, the entries from a walk and from the journal together include every entry of the partition,
/// however often walk and journal alternate.
#[test]
fn a_walk_and_the_journal_miss_no_key() {
    let memory = Memory::new(1 << 20, 1);
    let mut next = 0u64;
    for _ in 0..if cfg!(miri) { 2 } else { 40 } {
        let mut met = BTreeSet::new();
        let mut seen = with(&memory, |partition| partition.inserted());
        let mut cursor = Cursor::default();
        while !with(&memory, |partition| {
            partition.scan(&mut cursor, 512, |entry| {
                met.insert(number_of(entry));
                true
            })
        }) {
            for _ in 0..3 {
                next += 1;
                set(&memory, mix(next) % 5_000, 400);
            }
        }
        met.extend(followed(&memory, &mut seen).expect("a short walk"));
        let mut all = BTreeSet::new();
        with(&memory, |partition| {
            partition.scan(&mut Cursor::default(), u32::MAX, |entry| {
                all.insert(number_of(entry))
            })
        });
        assert!(all.is_subset(&met), "{:?}", all.difference(&met));
        (0..200).for_each(|i| set(&memory, next.wrapping_mul(31) + i, 400));
    }
}

#[test]
fn a_walk_continues_from_a_returned_place() {
    let memory = Memory::new(1 << 20, 1);
    let keys = if cfg!(miri) { 30 } else { 500 };
    (0..keys).for_each(|number| set(&memory, number, 7));
    let (mut place, mut met, mut bytes) = (0, Vec::new(), 0);
    loop {
        let mut cursor = Cursor::at(place);
        let done = with(&memory, |partition| {
            partition.scan(&mut cursor, 7, |entry| {
                met.push(number_of(entry));
                bytes += entry.bytes();
                met.len() % 3 > 0
            })
        });
        assert!(cursor.slot() > place, "a step goes on");
        place = cursor.slot();
        if done {
            break;
        }
        // Another key is inserted and removed, and a value grows and shrinks: no key moves to another slot.
        set(&memory, keys, 7);
        on_key(&memory, keys, |partition, key| {
            partition.remove(key, RemovalCause::Cleared)
        });
        set(&memory, 1, if place % 2 == 0 { 2000 } else { 7 });
    }
    assert_eq!(place, memory.region.layout().slots());
    met.sort_unstable();
    assert_eq!(met, (0..keys).collect::<Vec<_>>());
    assert!(bytes >= keys * 64, "each entry takes a granule");
    for beyond in [place, place + 1, u32::MAX] {
        let mut cursor = Cursor::at(beyond);
        let mut met = 0;
        let done = with(&memory, |partition| {
            partition.scan(&mut cursor, 7, |_| {
                met += 1;
                true
            })
        });
        assert!(done && met == 0, "there is nothing beyond");
    }
}
