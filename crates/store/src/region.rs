//! The region: raw shared memory, accessed as atomic words and byte copies. This file holds all unsafe operations of
//! the crate; `access.rs` states the promises of callers.
//!
//! No access leaves the region, for any location, and no reference to shared bytes outlives the call that made it.
//! Every word is an atomic, accessed relaxed unless stated otherwise, so that even a racing read of a word (a hint, a
//! statistic, a prefetch) is defined. The code copies bytes of entries only under the partition's lock. This file knows
//! nothing about the structures in the region.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::layout::{BUCKET_BYTES, Layout, PARTITION_BYTES, STRIPE_BYTES, region_word};

/// An initialized region: an address and its layout. Holds no lock and owns no memory.
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    pub(crate) layout: Layout,
}

// SAFETY: `Region` is an address and constants. Words are atomics, and byte copies happen only
// through `PartitionRef` and `PartitionMut`, whose makers promise the partition's lock.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives access to words, which are atomics, and to byte copies, which the partitions' locks guard:
// several threads may use both at once.
unsafe impl Sync for Region {}

impl Region {
    /// Wraps memory as a region, without reading or writing it.
    ///
    /// # Safety
    /// `base` is 64-byte aligned and valid for reads and writes of `layout.region_bytes()` bytes for as long as any
    /// `Region` over it lives. All other users of the memory follow the crate's access rules as long.
    pub(crate) unsafe fn over(base: NonNull<u8>, layout: &Layout) -> Region {
        Region {
            base,
            bytes: layout.region_bytes(),
            layout: *layout,
        }
    }

    /// Returns the length of the region in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the layout of this region: its sizes and counts.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the partition of a hash, and so its lock; the hash's top bits choose it.
    pub fn partition_of(&self, hash: u64) -> u32 {
        (((hash >> 32) * u64::from(self.layout.partitions)) >> 32) as u32
    }

    pub(crate) fn partition_at(&self, id: u32) -> usize {
        self.layout.partitions_at + id as usize * PARTITION_BYTES
    }

    pub(crate) fn stripes_at(&self, id: u32) -> usize {
        self.layout.stripes_at + id as usize * self.layout.stripes as usize * STRIPE_BYTES
    }

    pub(crate) fn buckets_at(&self, id: u32) -> usize {
        self.layout.buckets_at + id as usize * self.layout.buckets as usize * BUCKET_BYTES
    }

    /// Returns the word at a byte offset, or the scrap word for an offset outside the region.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        let at = if at <= self.bytes - 8 {
            at & !7
        } else {
            region_word::SCRAP
        };
        // SAFETY: `at + 8` lies inside the region and is 8-byte aligned because the base is; the memory lives as long
        // as `self`. The only non-atomic accesses to the same bytes are the copies below, and the partition's lock
        // orders them against this access.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    #[inline]
    pub(crate) fn load(&self, at: usize) -> u64 {
        self.word(at).load(Relaxed)
    }

    #[inline]
    pub(crate) fn store(&self, at: usize, value: u64) {
        self.word(at).store(value, Relaxed);
    }

    /// Returns the eight words of a cache line, or zeros for an offset outside the region.
    #[inline]
    pub(crate) fn line(&self, at: usize) -> [u64; 8] {
        if at > self.bytes - 64 {
            return [0; 8];
        }
        // SAFETY: the 64 bytes from `at`, rounded down to a line, lie inside the region and are
        // aligned as its base is; the memory lives as long as `self`, and is read as atomics, which
        // no writer of words races. Lines are read of index buckets only, where no bytes of entries
        // are copied.
        let line: &[AtomicU64; 8] = unsafe { &*self.base.as_ptr().add(at & !63).cast() };
        line.each_ref().map(|word| word.load(Relaxed))
    }

    /// Returns whether `len` bytes from `at` may be accessed: whether they are inside the arena.
    #[inline]
    fn inside(&self, at: usize, len: usize) -> bool {
        at >= self.layout.arena_at && at <= self.bytes && len <= self.bytes - at
    }

    #[inline]
    pub(crate) fn copy_out(&self, at: usize, into: &mut [u8]) {
        if self.inside(at, into.len()) {
            // SAFETY: the source lies inside the region (checked) and cannot overlap `into`, which
            // is an exclusive borrow of memory outside it. The partition's lock keeps writers away.
            unsafe {
                self.base
                    .as_ptr()
                    .add(at)
                    .copy_to_nonoverlapping(into.as_mut_ptr(), into.len())
            }
        }
    }

    #[inline]
    pub(crate) fn copy_in(&self, at: usize, from: &[u8]) {
        if self.inside(at, from.len()) {
            // SAFETY: the target lies inside the region (checked), in granules of the partition
            // whose exclusive lock the caller's `PartitionMut` stands for; `from` is the caller's
            // memory.
            unsafe {
                self.base
                    .as_ptr()
                    .add(at)
                    .copy_from_nonoverlapping(from.as_ptr(), from.len())
            }
        }
    }

    /// Copies a whole run to another offset, for compaction.
    pub(crate) fn copy_within(&self, from: usize, to: usize, len: usize) {
        if self.inside(from, len) && self.inside(to, len) {
            // SAFETY: both ranges lie inside the region (checked); `copy` allows them to overlap;
            // both belong to pages of the partition that is locked exclusively.
            unsafe {
                self.base
                    .as_ptr()
                    .add(from)
                    .copy_to(self.base.as_ptr().add(to), len)
            }
        }
    }

    #[inline]
    pub(crate) fn bytes_equal(&self, at: usize, bytes: &[u8]) -> bool {
        // SAFETY: `len` bytes from `at` lie inside the region (checked first); the slice lives only
        // for this comparison, during which the partition's lock keeps writers away.
        self.inside(at, bytes.len())
            && unsafe { core::slice::from_raw_parts(self.base.as_ptr().add(at), bytes.len()) }
                == bytes
    }

    /// Prefetches the cache line of an offset.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if at < self.bytes {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: SSE is part of x86_64; a prefetch reads nothing and cannot fault, and the
            // address is inside the region anyway.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().add(at).cast()) }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = at;
    }
}
