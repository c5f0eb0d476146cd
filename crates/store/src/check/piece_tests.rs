//! Tests that values are read correctly in pieces while other threads write, remove and move entries.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::vec;
use std::vec::Vec;

use super::testing::{Memory, hash, mix};
use crate::layout::PAGE;
use crate::{
    GetOutcome, Header, Key, NO_DEADLINE, NewEntry, PartitionMut, Piece, Reading, Region,
    RemovalCause, SetOutcome,
};

/// The length of a value of several pieces that does not end at the end of a page.
const LONG: usize = 3 * Reading::PIECE + 2 * PAGE + 700;

fn with<T>(region: &Region, act: impl FnOnce(&mut PartitionMut) -> T) -> T {
    let mut ledger = |_| {};
    // SAFETY: either only one thread exists, or the threads hold a lock and only one of them reads.
    act(&mut unsafe { region.partition_mut(0, &mut ledger) })
}

fn on_key<T>(region: &Region, number: u64, act: impl FnOnce(&mut PartitionMut, &Key) -> T) -> T {
    let bytes = &number.to_le_bytes();
    let key = Key {
        hash: hash(1, bytes),
        cache: 1,
        bytes,
    };
    with(region, |partition| act(partition, &key))
}

fn set(region: &Region, number: u64, value: &[u8]) {
    let new = NewEntry {
        version: 1,
        deadline: NO_DEADLINE,
        kind: 0,
        negative: false,
        value,
    };
    let stored = on_key(region, number, |partition, key| {
        partition.set(key, &new, 0, &mut region.grant())
    });
    assert!(matches!(stored, SetOutcome::Stored { .. }), "{stored:?}");
}

fn begin(region: &Region, number: u64) -> Option<Reading> {
    on_key(region, number, |partition, key| {
        partition.begin(key, |_| true)
    })
}

fn piece(region: &Region, number: u64, reading: &mut Reading, into: &mut Vec<u8>) -> Piece {
    let from = into.len();
    into.resize(from + reading.next(), 0);
    on_key(region, number, |partition, key| {
        partition.read_on(key, |_| true, reading, &mut into[from..])
    })
}

/// Reads the remaining pieces. Returns the outcome of the last piece.
fn rest(region: &Region, number: u64, reading: &mut Reading, into: &mut Vec<u8>) -> Piece {
    loop {
        match piece(region, number, reading, into) {
            Piece::Copied => {}
            end => return end,
        }
    }
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| mix(seed ^ at) as u8).collect()
}

#[test]
fn values_of_all_lengths_come_whole() {
    let memory = Memory::new(4 << 20, 1);
    let region = &memory.region;
    // Use fewer values under Miri, because it processes them byte by byte and is slow.
    let (all, over): (&[usize], &[usize]) = match cfg!(miri) {
        true => (&[1, 17], &[63]),
        false => (&[1, 2, 15, 16, 17, 32, 33], &[0, 1, 63, 2_000, PAGE - 1]),
    };
    for &pages in all {
        for &over in over {
            let value = bytes(over as u64, pages * PAGE + over);
            set(region, 1, &value);
            let mut reading = begin(region, 1).expect("it has pages");
            assert_eq!(reading.length(), value.len());
            let mut read = Vec::new();
            let end = rest(region, 1, &mut reading, &mut read);
            let is_whole = |header: Header| header.value_len as usize == value.len();
            assert!(matches!(end, Piece::Last(header) if is_whole(header)));
            assert!(read == value, "{pages} pages and {over} bytes");
            assert_eq!(reading.next(), 0);
        }
    }
    region.validate(0, hash);
}

#[test]
fn values_that_take_no_page_are_read_at_once() {
    let memory = Memory::new(1 << 20, 1);
    let region = &memory.region;
    assert_eq!(begin(region, 1), None);
    set(region, 1, &[7; 3_000]);
    assert_eq!(begin(region, 1), None);
    set(region, 1, &[7; 9_000]);
    let valid = |valid| on_key(region, 1, |part, key| part.begin(key, |_| valid));
    assert!(valid(true).is_some());
    assert_eq!(valid(false), None);
}

/// Makes changes, between the first piece and the second, that invalidate the value that is being read.
#[test]
#[cfg_attr(miri, ignore = "minutes; the tests below take the same ways")]
fn a_value_that_has_changed_is_not_gone_on_with() {
    type Change = (&'static str, fn(&Region));
    let changes: [Change; 7] = [
        ("the same length, in place", |region| {
            set(region, 1, &[2; LONG])
        }),
        ("the same value", |region| set(region, 1, &[1; LONG])),
        ("another length", |region| set(region, 1, &[2; LONG + PAGE])),
        ("a short one", |region| set(region, 1, &[2; 10])),
        ("removed", remove),
        ("removed and as it was, in the same place", |region| {
            remove(region);
            set(region, 1, &[1; LONG]);
        }),
        ("evicted", |region| {
            let gone = || on_key(region, 1, |part, key| part.peek(key).is_none());
            (2..200).for_each(|number| set(region, number, &[3; LONG]));
            assert!(gone(), "the others have taken its place");
        }),
    ];
    for (name, change) in changes {
        let memory = Memory::new(1 << 20, 1);
        let region = &memory.region;
        set(region, 1, &[1; LONG]);
        let mut reading = begin(region, 1).expect("it has pages");
        let mut read = Vec::new();
        assert_eq!(
            piece(region, 1, &mut reading, &mut read),
            Piece::Copied,
            "{name}"
        );
        change(region);
        assert_eq!(
            piece(region, 1, &mut reading, &mut read),
            Piece::Changed,
            "{name}"
        );
        region.validate(0, hash);
    }
}

fn remove(region: &Region) {
    on_key(region, 1, |part, key| {
        part.remove(key, RemovalCause::Cleared)
    });
}

#[test]
fn a_value_that_is_no_longer_valid_is_not_gone_on_with() {
    let memory = Memory::new(1 << 20, 1);
    let region = &memory.region;
    set(region, 1, &[1; LONG]);
    let mut reading = begin(region, 1).expect("it has pages");
    let mut into = vec![0; reading.next()];
    let end = on_key(region, 1, |part, key| {
        part.read_on(key, |_| false, &mut reading, &mut into)
    });
    assert_eq!(end, Piece::Changed);
}

/// Tests that a value stays readable while compaction moves its runs, while other keys are written, and when its
/// deadline changes.
#[test]
#[cfg_attr(miri, ignore = "minutes; the tests below take the same ways")]
fn a_value_that_is_moved_is_gone_on_with() {
    let memory = Memory::new(1 << 20, 1);
    let region = &memory.region;
    let value = bytes(5, LONG);
    (10..60).for_each(|number| set(region, number, &[3; 1_000]));
    set(region, 1, &value);
    (60..110).for_each(|number| set(region, number, &[3; 1_000]));
    let mut reading = begin(region, 1).expect("it has pages");
    let mut read = Vec::new();
    piece(region, 1, &mut reading, &mut read);
    let place = |number| {
        let location =
            |part: &mut PartitionMut, key: &Key| part.peek(key).map(|entry| entry.location);
        on_key(region, number, location).expect("it is there")
    };
    let before = place(1);
    // The value is alone in its page, and holes exist elsewhere.
    for number in 10..110 {
        if number % 2 == 0 || region.page_of(place(number)) == region.page_of(before) {
            on_key(region, number, |part, key| {
                part.remove(key, RemovalCause::Cleared)
            });
        }
    }
    on_key(region, 1, |part, key| part.touch(key, 77));
    assert!(with(region, |part| part.vacate_page()));
    assert_ne!(place(1), before, "it was moved");
    let end = rest(region, 1, &mut reading, &mut read);
    assert!(matches!(end, Piece::Last(header) if header.deadline == 77));
    assert!(read == value);
    region.validate(0, hash);
}

#[test]
fn the_last_piece_alone_counts_as_a_hit() {
    let memory = Memory::new(1 << 20, 1);
    let region = &memory.region;
    set(region, 1, &[1; LONG]);
    let mut reading = begin(region, 1).expect("it has pages");
    let mut read = Vec::new();
    piece(region, 1, &mut reading, &mut read);
    assert_eq!(region.stats().hits, 0);
    rest(region, 1, &mut reading, &mut read);
    assert_eq!(region.stats().hits, 1);
    let found = on_key(region, 1, |part, key| part.get(key, 0, |_| true, &mut []));
    assert!(matches!(found, GetOutcome::TooSmall(_)));
}

/// Runs writers of values with one repeated byte each, all of the same length, and a reader that releases the lock
/// after each piece.
#[test]
fn pieces_of_two_values_are_never_put_together() {
    let memory = Memory::new(2 << 20, 1);
    let region = &memory.region;
    let lock = RwLock::new(());
    let ends = AtomicBool::new(false);
    let length = if cfg!(miri) { 18 * PAGE } else { LONG };
    let (mut whole, mut changed) = (0, 0);
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (region, lock, ends) = (region, &lock, &ends);
            scope.spawn(move || {
                for round in 0.. {
                    if ends.load(Relaxed) {
                        return;
                    }
                    let dice = mix(round << 1 | writer);
                    let _held = lock.write().unwrap();
                    match dice % 8 {
                        0 => remove(region),
                        1 => set(region, 2 + dice % 5, &vec![9; dice as usize % length]),
                        _ => set(region, 1, &vec![dice as u8; length]),
                    }
                }
            });
        }
        for _ in 0..if cfg!(miri) { 2 } else { 200_000 } {
            if whole > 300 && changed > 300 {
                break;
            }
            // Lets writers take the lock before the reader takes it again.
            std::thread::yield_now();
            let begun = {
                let _held = lock.read().unwrap();
                begin(region, 1)
            };
            let Some(mut reading) = begun else {
                continue;
            };
            let mut read = Vec::new();
            let end = loop {
                if changed <= whole {
                    std::thread::yield_now();
                }
                let _held = lock.read().unwrap();
                match piece(region, 1, &mut reading, &mut read) {
                    Piece::Copied => {}
                    end => break end,
                }
            };
            changed += u64::from(end == Piece::Changed);
            if end != Piece::Changed {
                whole += 1;
                assert!(read.iter().all(|byte| *byte == read[0]), "a value is whole");
                assert_eq!(read.len(), length);
            }
        }
        ends.store(true, Relaxed);
    });
    assert!(cfg!(miri) || whole > 0 && changed > 0, "{whole} {changed}");
    region.validate(0, hash);
}
