//! Runs threads that use one region under the documented locks. Each test is named after the race that it provokes.

use std::sync::RwLock;
use std::thread;
use std::vec;
use std::vec::Vec;

use super::testing::{Memory, hash, mix};
use crate::{
    Cursor, GetOutcome, Key, NO_DEADLINE, NewEntry, Region, RemovalCause, SET_ROUNDS, SetOutcome,
    Verdict,
};

struct Shared<'m> {
    region: &'m Region,
    locks: Vec<RwLock<()>>,
}

/// Returns a value that contains its key and the sequence number of its write, so that a reader detects a torn value
/// and a value of another key.
fn value_of(key: u64, write: u64, len: usize) -> Vec<u8> {
    let mut value = vec![0; len.max(16)];
    value
        .chunks_mut(8)
        .for_each(|part| part.copy_from_slice(&mix(key ^ write << 32).to_le_bytes()[..part.len()]));
    value[..8].copy_from_slice(&write.to_le_bytes());
    value
}

impl Shared<'_> {
    fn new(memory: &Memory) -> Shared<'_> {
        let locks = (0..memory.region.layout().partitions())
            .map(|_| RwLock::new(()))
            .collect();
        Shared {
            region: &memory.region,
            locks,
        }
    }

    /// Stores an entry; returns false if other writers took the pages in all rounds.
    fn set(&self, number: u64, write: u64, len: usize) -> bool {
        let name = number.to_le_bytes();
        let key = Key {
            hash: hash(1, &name),
            cache: 1,
            bytes: &name,
        };
        let value = value_of(number, write, len);
        let new = NewEntry {
            version: write,
            deadline: NO_DEADLINE,
            kind: 0,
            negative: false,
            value: &value,
        };
        let home = self.region.partition_of(key.hash);
        let (mut grant, mut ledger) = (self.region.grant(), |_| {});
        for _ in 0..SET_ROUNDS {
            let lock = self.locks[home as usize].write().unwrap();
            // SAFETY: lock `home` is held exclusively.
            let answer = unsafe { self.region.partition_mut(home, &mut ledger) }
                .set(&key, &new, 0, &mut grant);
            drop(lock);
            let SetOutcome::NeedPages { pages, victim } = answer else {
                return true;
            };
            let _lock = self.locks[victim as usize].write().unwrap();
            // SAFETY: lock `victim` is held exclusively, and `home` is not held.
            unsafe { self.region.partition_mut(victim, &mut ledger) }.reclaim(pages, 0, &mut grant);
        }
        false
    }

    fn get(&self, number: u64, buffer: &mut [u8]) -> bool {
        let name = number.to_le_bytes();
        let key = Key {
            hash: hash(1, &name),
            cache: 1,
            bytes: &name,
        };
        let home = self.region.partition_of(key.hash);
        self.region.prefetch_entry(key.hash);
        let _lock = self.locks[home as usize].read().unwrap();
        // SAFETY: lock `home` is held shared.
        match unsafe { self.region.partition(home) }.get(&key, 0, |_| true, buffer) {
            GetOutcome::Hit(header) => {
                let len = header.value_len as usize;
                assert!(
                    buffer[..len] == value_of(number, header.version, len),
                    "a value is whole"
                );
                true
            }
            GetOutcome::TooSmall(_) => panic!("the buffer holds the longest value"),
            GetOutcome::Miss => false,
        }
    }

    fn sweep(&self, id: u32) {
        let _lock = self.locks[id as usize].write().unwrap();
        let mut ledger = |_| {};
        // SAFETY: lock `id` is held exclusively.
        let mut partition = unsafe { self.region.partition_mut(id, &mut ledger) };
        partition.sweep(&mut Cursor::default(), 200, |entry| {
            match entry.header().version % 3 {
                0 => Verdict::Remove(RemovalCause::Invalidated),
                _ => Verdict::Keep,
            }
        });
    }
}

fn storm(
    size: usize,
    partitions: u32,
    rounds: u64,
    length: impl Fn(u64) -> usize + Sync,
) -> (u64, u64) {
    let memory = Memory::new(size, partitions);
    let shared = Shared::new(&memory);
    let (length, shared) = (&length, &shared);
    let run = move |thread: u64| {
        let (mut buffer, mut hits, mut refused) =
            (vec![0; if cfg!(miri) { 10_000 } else { 200_000 }], 0, 0);
        for round in 0..rounds {
            let dice = mix(round << 8 | thread);
            let key = (dice >> 8) % 300;
            match dice % 8 {
                0..=3 => hits += u64::from(shared.get(key, &mut buffer)),
                7 if dice >> 60 == 0 => shared.sweep(key as u32 & (partitions - 1)),
                _ => refused += u64::from(!shared.set(key, dice >> 16 & 0xFFFF, length(mix(dice)))),
            }
        }
        (hits, refused)
    };
    let sums = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| scope.spawn(move || run(thread)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    });
    memory.region.validate(0, hash);
    sums
}

#[test]
fn small_writes_race_reads_and_sweeps_without_a_torn_value() {
    let rounds = if cfg!(miri) { 20 } else { 30_000 };
    let (hits, refused) = storm(300 << 10, 2, rounds, |dice| dice as usize % 1_500);
    assert!(cfg!(miri) || hits > 1_000);
    assert_eq!(refused, 0);
}

#[test]
fn large_writes_that_compete_for_pages_all_succeed() {
    let rounds = if cfg!(miri) { 10 } else { 6_000 };
    let longest = if cfg!(miri) { 9_000 } else { 120_000 };
    let (hits, refused) = storm(
        if cfg!(miri) { 300 << 10 } else { 1 << 20 },
        4,
        rounds,
        |dice| dice as usize % longest,
    );
    assert!(cfg!(miri) || hits > 100);
    assert_eq!(refused, 0);
}

#[test]
fn figures_that_are_read_while_pages_change_hands_add_up() {
    let memory = Memory::new(300 << 10, 2);
    let shared = Shared::new(&memory);
    let rounds = if cfg!(miri) { 5 } else { 20_000 };
    let write = |thread: u64| {
        for round in 0..rounds {
            let dice = mix(round << 8 | thread);
            let long = if dice.is_multiple_of(2) { 40_000 } else { 900 };
            shared.set(dice >> 8 & 0xFF, round, dice as usize % long);
        }
    };
    thread::scope(|scope| {
        let writers = [1, 2].map(|thread| scope.spawn(move || write(thread)));
        while writers.iter().any(|writer| !writer.is_finished()) {
            let usage = memory.region.usage();
            let parts = [usage.bookkeeping, usage.entries, usage.holes, usage.free];
            assert_eq!(parts.iter().sum::<u64>(), usage.region, "{usage:?}");
        }
    });
    memory.region.validate(0, hash);
}
