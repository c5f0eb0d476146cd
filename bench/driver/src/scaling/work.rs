//! The store in shared memory with its locks, and the operations that are measured.

use std::cell::Cell;

use pgcache_store::{
    EntryEvent, GetOutcome, Key, Layout, NO_DEADLINE, NewEntry, Region, SET_ROUNDS, SetOutcome,
};

use super::lock::{Held, Lock};
use super::shared;
use crate::Result;

const VALUE: [u8; 37] = [b'v'; 37];
/// The number of keys that a batch of `cache_get_many` looks up at once.
pub const BATCH: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Get,
    Set,
    /// Gets a batch: prefetches the buckets of all keys, then their entries, then reads each entry.
    GetMany,
    /// Only takes and releases the lock, to show its share of a get.
    LockShared,
    /// Only takes and releases the lock, to show its share of a set.
    LockExclusive,
}

impl Work {
    pub const ALL: [Work; 5] = [Work::Get, Work::Set, Work::GetMany, Work::LockShared, Work::LockExclusive];

    pub fn name(self) -> &'static str {
        match self {
            Work::Get => "get",
            Work::Set => "set",
            Work::GetMany => "get by 32",
            Work::LockShared => "lock shared",
            Work::LockExclusive => "lock exclusive",
        }
    }
}

pub struct Tier {
    region: Region,
    locks: &'static [Lock],
    /// The number of times that this process had to wait for a lock.
    waits: Cell<u64>,
}

impl Tier {
    /// Creates a tier with as many partitions as a server's tier of that size.
    pub fn of(size: usize) -> Result<Tier> {
        let layout = Layout::new(size, 0).map_err(|_| "the size is too small")?;
        let memory = shared::zeroed(layout.region_bytes())?;
        // SAFETY: only the region uses the memory, which is page-aligned and never unmapped; locks are atomics.
        unsafe {
            Ok(Tier {
                region: Region::init(memory, &layout),
                locks: shared::array(layout.partitions() as usize)?,
                waits: Cell::new(0),
            })
        }
    }

    pub fn partitions(&self) -> u32 {
        self.region.layout().partitions()
    }

    pub fn waits(&self) -> u64 {
        self.waits.get()
    }

    fn count<'l>(&self, held: Held<'l>) -> Held<'l> {
        self.waits.set(self.waits.get() + u64::from(held.waited));
        held
    }

    fn shared(&self, partition: u32) -> Held<'_> {
        self.count(self.locks[partition as usize].shared())
    }

    fn exclusive(&self, partition: u32) -> Held<'_> {
        self.count(self.locks[partition as usize].exclusive())
    }

    /// Does the work once for each key.
    pub fn run(&self, work: Work, numbers: &[u32; BATCH]) {
        if work == Work::GetMany {
            numbers.iter().for_each(|&number| self.region.prefetch_buckets(hash(number)));
            numbers.iter().for_each(|&number| self.region.prefetch_entry(hash(number)));
        }
        for &number in numbers {
            let home = self.region.partition_of(hash(number));
            match work {
                Work::Get | Work::GetMany => drop(std::hint::black_box(self.get(number))),
                Work::Set => self.set(number),
                Work::LockShared => drop(self.shared(home)),
                Work::LockExclusive => drop(self.exclusive(home)),
            }
        }
    }

    fn get(&self, number: u32) -> Option<[u8; 64]> {
        let (name, mut buffer) = (name(number), [0; 64]);
        let key = key(number, &name);
        let home = self.region.partition_of(key.hash);
        let _lock = self.shared(home);
        // SAFETY: lock `home` is held shared.
        let partition = unsafe { self.region.partition(home) };
        let found = partition.get(&key, 0, |header| header.version == 1, &mut buffer);
        matches!(found, GetOutcome::Hit(_)).then_some(buffer)
    }

    pub fn set(&self, number: u32) {
        let name = name(number);
        let key = key(number, &name);
        let new = NewEntry { version: 1, deadline: NO_DEADLINE, kind: 0, negative: false, value: &VALUE };
        let home = self.region.partition_of(key.hash);
        let mut ledger = |_: EntryEvent| {};
        let mut grant = self.region.grant();
        for _ in 0..SET_ROUNDS {
            let lock = self.exclusive(home);
            // SAFETY: lock `home` is held exclusively.
            let mut partition = unsafe { self.region.partition_mut(home, &mut ledger) };
            let set = partition.set(&key, &new, 0, &mut grant);
            drop(lock);
            let SetOutcome::NeedPages { pages, victim } = set else {
                return;
            };
            let _lock = self.exclusive(victim);
            // SAFETY: lock `victim` is held exclusively, `home` is not held.
            unsafe { self.region.partition_mut(victim, &mut ledger) }.reclaim(pages, 0, &mut grant);
        }
    }
}

fn key(number: u32, name: &[u8; 16]) -> Key<'_> {
    Key { hash: hash(number), cache: 1, bytes: name }
}

/// Returns the hash of a key. It spreads keys as well as the server's hash, but is cheaper, because the benchmark does
/// not measure the hash.
fn hash(number: u32) -> u64 {
    let mixed = (u64::from(number) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn name(number: u32) -> [u8; 16] {
    let (mut bytes, mut rest) = (*b"key:000000000000", number);
    for at in (4..16).rev() {
        bytes[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}
