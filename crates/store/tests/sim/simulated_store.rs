//! The store behind the interface `Cache`. It runs in one thread, so it needs no locks.

use std::alloc;
use std::ptr::NonNull;

use pgcache_store::{
    Cursor, EntryEvent, EntryRef, GetOutcome, Key, Layout, NO_DEADLINE, NewEntry, Params, Region,
    RemovalCause, SET_ROUNDS, SetOutcome, Verdict,
};

use super::Cache;
use super::traces::mix;

/// Microseconds between two sweeps.
const SWEEP_INTERVAL: i64 = 10_000_000;

pub struct Tier {
    base: NonNull<u8>,
    shape: alloc::Layout,
    pub region: Region,
    buffer: Vec<u8>,
    value: Vec<u8>,
    /// The number of bytes of a key, at least 16.
    key_bytes: usize,
    now: i64,
    deadline: i64,
}

/// The length of a typical application's keys: 16 bytes of text.
pub const KEY_BYTES: usize = 16;

impl Tier {
    pub fn new(params: Params) -> Tier {
        let layout = Layout::with(params).unwrap();
        let shape = alloc::Layout::from_size_align(layout.region_bytes(), 4096).unwrap();
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc::alloc_zeroed(shape) }).unwrap();
        // SAFETY: freshly allocated with the layout's size, and only this region uses it until `drop`.
        let region = unsafe { Region::init(base, &layout) };
        Tier {
            base,
            shape,
            region,
            buffer: vec![0; 1 << 20],
            value: vec![7; 1 << 20],
            key_bytes: KEY_BYTES,
            now: 0,
            deadline: NO_DEADLINE,
        }
    }

    /// Makes a tier with keys of this many bytes.
    pub fn with_keys(params: Params, key_bytes: usize) -> Tier {
        let mut tier = Tier::new(params);
        tier.key_bytes = key_bytes;
        tier
    }

    /// Stores the entry, and responds to `NeedPages` until it succeeds; returns the number of other partitions that
    /// gave pages.
    pub fn set(&mut self, key: u64, value_len: usize) -> usize {
        let name = self.name(key);
        let key = Key {
            hash: mix(key ^ 0xABCD),
            cache: 1,
            bytes: name.as_bytes(),
        };
        let value = &self.value[..value_len];
        let new = NewEntry {
            version: 1,
            deadline: self.deadline,
            kind: 0,
            negative: false,
            value,
        };
        let home = self.region.partition_of(key.hash);
        let mut ledger = |_: EntryEvent| {};
        let mut grant = self.region.grant();
        for round in 0..SET_ROUNDS {
            // SAFETY: one thread, and this `PartitionMut` ends before the next one begins.
            let answer = unsafe { self.region.partition_mut(home, &mut ledger) }
                .set(&key, &new, self.now, &mut grant);
            match answer {
                SetOutcome::Stored { .. } => return round,
                SetOutcome::NeedPages { pages, victim } => {
                    // SAFETY: one thread, and the home's `PartitionMut` ended with its statement.
                    unsafe { self.region.partition_mut(victim, &mut ledger) }
                        .reclaim(pages, self.now, &mut grant);
                }
                SetOutcome::TooLarge => panic!("too large"),
            }
        }
        panic!("a write failed for want of space");
    }

    fn name(&self, key: u64) -> String {
        format!("{key:0width$x}", width = self.key_bytes)
    }

    /// Removes expired entries, as the worker does.
    fn sweep(&mut self, now: i64) {
        let mut ledger = |_: EntryEvent| {};
        let judge = |entry: &EntryRef| match now >= entry.header().deadline {
            true => Verdict::Remove(RemovalCause::Expired),
            false => Verdict::Keep,
        };
        for id in 0..self.region.layout().partitions() {
            // SAFETY: one thread, and this `PartitionMut` ends before the next one begins.
            let mut partition = unsafe { self.region.partition_mut(id, &mut ledger) };
            partition.sweep(&mut Cursor::default(), u32::MAX, judge);
        }
    }

    pub fn get(&mut self, key: u64) -> bool {
        let name = self.name(key);
        let key = Key {
            hash: mix(key ^ 0xABCD),
            cache: 1,
            bytes: name.as_bytes(),
        };
        // SAFETY: one thread, no `PartitionMut` alive.
        let partition = unsafe { self.region.partition(self.region.partition_of(key.hash)) };
        matches!(
            partition.get(&key, self.now, |_| true, &mut self.buffer),
            GetOutcome::Hit(_)
        )
    }
}

impl Cache for Tier {
    fn request(&mut self, key: u64, size: usize) -> bool {
        if self.get(key) {
            return true;
        }
        self.set(key, size - KEY_BYTES);
        false
    }

    fn at(&mut self, now: i64, deadline: i64) {
        if now / SWEEP_INTERVAL != self.now / SWEEP_INTERVAL {
            self.sweep(now);
        }
        (self.now, self.deadline) = (now, deadline);
    }

    fn store(&mut self, key: u64, size: usize) {
        self.set(key, size - KEY_BYTES);
    }

    fn remove(&mut self, key: u64) {
        let name = self.name(key);
        let key = Key {
            hash: mix(key ^ 0xABCD),
            cache: 1,
            bytes: name.as_bytes(),
        };
        let mut ledger = |_: EntryEvent| {};
        let home = self.region.partition_of(key.hash);
        // SAFETY: one thread, no other `PartitionMut` alive.
        let mut partition = unsafe { self.region.partition_mut(home, &mut ledger) };
        partition.remove(&key, RemovalCause::Cleared);
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this shape.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.shape) }
    }
}
