//! The store as a `Cache`: one thread, so the locking rules hold by themselves.

use std::alloc;
use std::ptr::NonNull;

use pgcache_store::{
    Change, Found, Key, Layout, NO_DEADLINE, Params, Record, Region, SET_ROUNDS, Set,
};

use super::Cache;
use super::traces::mix;

pub struct Tier {
    base: NonNull<u8>,
    shape: alloc::Layout,
    pub region: Region,
    buffer: Vec<u8>,
    value: Vec<u8>,
}

/// Keys as an application would have them: 16 bytes of text.
pub const KEY_BYTES: usize = 16;

impl Tier {
    pub fn new(params: Params) -> Tier {
        let layout = Layout::with(params).unwrap();
        let shape = alloc::Layout::from_size_align(layout.region_bytes(), 4096).unwrap();
        let base = NonNull::new(unsafe { alloc::alloc_zeroed(shape) }).unwrap();
        // SAFETY: freshly allocated with the layout's size, used by this region alone until `drop`.
        let region = unsafe { Region::init(base, &layout) };
        Tier {
            base,
            shape,
            region,
            buffer: vec![0; 1 << 20],
            value: vec![7; 1 << 20],
        }
    }

    /// Stores and answers `NeedPages` until it is stored; the number of other partitions asked.
    pub fn set(&mut self, key: u64, value_len: usize) -> usize {
        let name = name(key);
        let key = Key {
            hash: mix(key ^ 0xABCD),
            cache: 1,
            bytes: name.as_bytes(),
        };
        let value = &self.value[..value_len];
        let record = Record {
            version: 1,
            deadline: NO_DEADLINE,
            kind: 0,
            negative: false,
            value,
        };
        let home = self.region.partition_of(key.hash);
        let mut ledger = |_: Change| {};
        let mut grant = self.region.grant();
        for round in 0..SET_ROUNDS {
            // SAFETY: one thread, and this `PartitionMut` is gone before the next is made.
            let answer = unsafe { self.region.partition_mut(home, &mut ledger) }
                .set(&key, &record, 0, &mut grant);
            match answer {
                Set::Stored { .. } => return round,
                Set::NeedPages { pages, victim } => {
                    // SAFETY: one thread, and the `PartitionMut` of `home` is gone by now.
                    unsafe { self.region.partition_mut(victim, &mut ledger) }
                        .reclaim(pages, 0, &mut grant);
                }
                Set::TooLarge => panic!("too large"),
            }
        }
        panic!("a write failed for want of space");
    }

    pub fn get(&mut self, key: u64) -> bool {
        let name = name(key);
        let key = Key {
            hash: mix(key ^ 0xABCD),
            cache: 1,
            bytes: name.as_bytes(),
        };
        // SAFETY: one thread, no `PartitionMut` alive.
        let partition = unsafe { self.region.partition(self.region.partition_of(key.hash)) };
        matches!(
            partition.get(&key, 0, |_| true, &mut self.buffer),
            Found::Hit(_)
        )
    }
}

fn name(key: u64) -> String {
    format!("key:{key:012}")
}

impl Cache for Tier {
    fn request(&mut self, key: u64, size: usize) -> bool {
        if self.get(key) {
            return true;
        }
        self.set(key, size - KEY_BYTES);
        false
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        // SAFETY: allocated with this shape in `new`.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.shape) }
    }
}
