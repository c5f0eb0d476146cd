//! The layout of the file in which entries of memory caches survive a restart. Numbers are little-endian:
//!
//! ```text
//! MAGIC | control file: length u32, bytes | caches: count u32, then id u64, memory id u64 each
//! entries: EntryHead, key, value ... | an EntryHead whose cache is END | number of entries u64
//! checksum of all bytes before: xxh3, u64
//! ```
//!
//! If any part of the layout, or a number of `ValueType`, changes, MAGIC must change, too; otherwise the server would
//! misread an older file.

use std::ffi::CStr;
use std::path::Path;

/// The complete file.
pub const FILE: &CStr = c"pg_stat/pgcache_memory.stat";
/// The file while it is being written.
pub const UNFINISHED: &CStr = c"pg_stat/pgcache_memory.tmp";
/// The last byte is the number of the format.
pub const MAGIC: &[u8; 8] = b"pgcache\x01";
/// The value of [`EntryHead::cache`] after the last entry.
pub const END: u32 = u32::MAX;
/// The length of the checksum in bytes.
pub const CHECKSUM: u64 = 8;

/// Returns one of the two file names as a path.
pub fn path(name: &'static CStr) -> &'static Path {
    Path::new(name.to_str().unwrap_or_default())
}

/// The fixed part of an entry, before its key and value.
#[derive(Clone, Copy)]
pub struct EntryHead {
    /// The index of the cache in the list of caches.
    pub cache: u32,
    pub key_len: u32,
    pub value_len: u32,
    pub kind: u8,
    pub negative: bool,
    pub deadline: i64,
}

impl EntryHead {
    /// The length of a head in bytes.
    pub const BYTES: usize = 22;

    pub fn to_bytes(self) -> [u8; EntryHead::BYTES] {
        let mut bytes = [0; EntryHead::BYTES];
        let (words, rest) = bytes.split_at_mut(12);
        for (place, number) in
            words
                .chunks_exact_mut(4)
                .zip([self.cache, self.key_len, self.value_len])
        {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let (flags, deadline) = rest.split_at_mut(2);
        flags.copy_from_slice(&[self.kind, u8::from(self.negative)]);
        deadline.copy_from_slice(&self.deadline.to_le_bytes());
        bytes
    }

    pub fn of_bytes(bytes: &[u8; EntryHead::BYTES]) -> EntryHead {
        let (words, rest) = bytes.split_at(12);
        let mut numbers = words.chunks_exact(4).map(|chunk| {
            chunk
                .first_chunk::<4>()
                .map_or(0, |bytes| u32::from_le_bytes(*bytes))
        });
        let mut next = || numbers.next().unwrap_or(0);
        EntryHead {
            cache: next(),
            key_len: next(),
            value_len: next(),
            kind: rest.first().copied().unwrap_or(0),
            negative: rest.get(1).is_some_and(|&negative| negative != 0),
            deadline: rest
                .last_chunk::<8>()
                .map_or(0, |bytes| i64::from_le_bytes(*bytes)),
        }
    }
}
