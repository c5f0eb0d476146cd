//! The unsafe functions that give a caller access to a region. The crate cannot see the locks, so the caller promises
//! to hold them.
//!
//! These functions take no lock, and access memory only through `region.rs`. Only this file creates a `PartitionRef` or
//! `PartitionMut`, so its owner has always promised to hold the partition's lock.

use core::ptr::NonNull;

use crate::entry_events::Ledger;
use crate::layout::{Layout, region_word};
use crate::partition::{PartitionMut, PartitionRef};
use crate::region::Region;

const MAGIC: u64 = u64::from_le_bytes(*b"pgcache1");

impl Region {
    /// Initializes memory of any content as an empty region.
    ///
    /// # Safety
    /// `base` is 64-byte aligned, valid for reads and writes of `layout.region_bytes()` bytes for
    /// as long as any `Region` over it lives, and no other thread or process uses it during this call.
    pub unsafe fn init(base: NonNull<u8>, layout: &Layout) -> Region {
        // SAFETY: the caller promises the alignment, length and life of the memory.
        let region = unsafe { Region::over(base, layout) };
        for at in (0..layout.arena_at).step_by(8) {
            region.store(at, 0);
        }
        region.store(region_word::SIZE, region.bytes() as u64);
        region.store(region_word::PAGES, u64::from(layout.pages));
        region.store(region_word::PARTITIONS, u64::from(layout.partitions));
        region.start_pool();
        region.store(region_word::MAGIC, MAGIC);
        region
    }

    /// Attaches to a region that `init` has initialized with the same layout. Returns None if the memory contains no
    /// such region.
    ///
    /// # Safety
    /// The same as for [`Region::init`], except that other threads and processes may use the region during this call.
    pub unsafe fn attach(base: NonNull<u8>, layout: &Layout) -> Option<Region> {
        // SAFETY: the caller promises the alignment, length and life of the memory; other users follow the access
        // rules, and this function reads only words, which are atomics.
        let region = unsafe { Region::over(base, layout) };
        let same = region.load(region_word::MAGIC) == MAGIC
            && region.load(region_word::SIZE) == region.bytes() as u64
            && region.load(region_word::PAGES) == u64::from(layout.pages)
            && region.load(region_word::PARTITIONS) == u64::from(layout.partitions);
        same.then_some(region)
    }

    /// Returns access to a partition for lookups.
    ///
    /// # Safety
    /// The caller holds lock `id`, shared or exclusive, as long as the result lives.
    #[inline]
    pub unsafe fn partition(&self, id: u32) -> PartitionRef<'_> {
        PartitionRef::new(self, id & (self.layout.partitions - 1))
    }

    /// Returns access to a partition for changes. Reports each entry that is stored or removed to `ledger`.
    ///
    /// # Safety
    /// The caller holds lock `id` exclusively as long as the result lives.
    #[inline]
    pub unsafe fn partition_mut<'a>(
        &'a self,
        id: u32,
        ledger: &'a mut dyn Ledger,
    ) -> PartitionMut<'a> {
        PartitionMut::new(
            PartitionRef::new(self, id & (self.layout.partitions - 1)),
            ledger,
        )
    }
}
