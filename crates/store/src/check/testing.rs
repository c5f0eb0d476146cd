//! A region in ordinary memory, for the crate's own tests.

use core::ptr::NonNull;
use std::alloc;

use crate::{Layout, Params, Region};

pub struct Memory {
    base: NonNull<u8>,
    shape: alloc::Layout,
    pub region: Region,
}

impl Memory {
    pub fn new(size: usize, partitions: u32) -> Memory {
        Memory::with(Params::new(size, partitions))
    }

    pub fn with(params: Params) -> Memory {
        Memory::dirty(params, 0xA5)
    }

    /// Fills the memory with a pattern before the region is initialized.
    pub fn dirty(params: Params, pattern: u8) -> Memory {
        let layout = Layout::with(params).expect("a layout");
        let shape = alloc::Layout::from_size_align(layout.region_bytes(), 64).expect("a shape");
        // SAFETY: the shape has a size above zero; all bytes are written before any is read.
        let base = NonNull::new(unsafe { alloc::alloc(shape) }).expect("memory");
        // SAFETY: the bytes were just allocated, and only this region uses them until `drop`.
        let region = unsafe {
            base.write_bytes(pattern, shape.size());
            Region::init(base, &layout)
        };
        Memory {
            base,
            shape,
            region,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `dirty` allocated the memory with this shape; the region ends with `self`.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.shape) }
    }
}

/// Returns a hash that is uniform in all bits; the crate requires such hashes.
pub fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

pub fn hash(cache: u32, key: &[u8]) -> u64 {
    key.iter().fold(mix(u64::from(cache)), |hash, byte| {
        mix(hash ^ u64::from(*byte))
    })
}
