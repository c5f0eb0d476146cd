//! A window over the keys of a memory cache: the next keys in order, which one walk over the tier has found and which
//! the session keeps for the following pages.
//!
//! A window contains every key of the cache between its two ends, and perhaps keys whose entries are removed, expired
//! or outdated. So a page looks up the entry of each key. The only change that makes a window incomplete is a new key,
//! and the tier's journals list new keys.
//!
//! A window takes at most [`MOST_BYTES`] of a session's memory, however large the cache or the page.

use std::collections::BinaryHeap;

use crate::cache::tier::walk::Met;
use crate::pg::memory;
use crate::pg::shmem::tier::Tier;

/// The largest number of bytes that the keys of a window take in the session's memory.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// The memory that a key takes besides its bytes: the element of the list, and the overhead of the allocator.
const KEY_OVERHEAD: usize = 40;

/// All keys of a slot from `start` to `end`, excluding `end`.
pub struct Window {
    met: Met,
    start: Vec<u8>,
    /// None if the window has no end.
    end: Option<Vec<u8>>,
    /// Sorted.
    keys: Vec<Vec<u8>>,
    bytes: usize,
}

impl Window {
    /// Walks over the tier for the first keys of `start <= key < end` in key order, at most `room`. If more keys
    /// exist, the window ends before them.
    pub fn walk(tier: &Tier, slot: u32, start: &[u8], end: Option<&[u8]>, room: usize) -> Window {
        let mut least = Least::new(room);
        let met = Met::all(tier, slot, |key| {
            if key >= start && end.is_none_or(|end| key < end) {
                least.offer(key);
            }
        });
        Window {
            met,
            start: memory::copy(start),
            end: least.limit.or_else(|| end.map(memory::copy)),
            bytes: least.bytes,
            keys: least.heap.into_sorted_vec(),
        }
    }

    /// Returns whether the window contains the keys of a slot from `start` on.
    pub fn reaches(&self, slot: u32, start: &[u8]) -> bool {
        self.met.slot() == slot
            && &self.start[..] <= start
            && self.end.as_ref().is_none_or(|end| start < &end[..])
    }

    /// Returns whether the window contains the keys of a slot up to `start`, but not `start` itself.
    pub fn ends_at(&self, slot: u32, start: &[u8]) -> bool {
        self.met.slot() == slot && self.end() == Some(start)
    }

    /// Returns the end of the window; None if it has no end.
    pub fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }

    /// Returns the keys of the window from `start` on.
    pub fn from(&self, start: &[u8]) -> &[Vec<u8>] {
        let first = self.keys.partition_point(|key| &key[..] < start);
        &self.keys[first..]
    }

    /// Adds the keys that were inserted since the last visit.
    pub fn follow(&mut self, tier: &Tier) {
        let mut least = Least::new(usize::MAX);
        let (start, end, keys) = (&self.start, &self.end, &self.keys);
        self.met.follow(tier, |key| {
            if key >= &start[..]
                && end.as_ref().is_none_or(|end| key < &end[..])
                && keys.binary_search_by(|own| own[..].cmp(key)).is_err()
            {
                least.offer(key);
            }
        });
        if let Some(limit) = least.limit {
            self.end_before(limit);
        }
        let mut new = least.heap.into_sorted_vec();
        new.dedup(); // a key that was inserted, removed and inserted again is visited twice
        if !new.is_empty() {
            self.merge(new);
            self.shorten();
        }
    }

    /// Drops the keys from `limit` on; `limit` becomes the end of the window.
    fn end_before(&mut self, limit: Vec<u8>) {
        let stay = self.keys.partition_point(|key| *key < limit);
        for key in self.keys.drain(stay..) {
            self.bytes -= key.len() + KEY_OVERHEAD;
        }
        self.end = Some(limit);
    }

    /// Merges new keys, which are sorted, into the window's keys.
    fn merge(&mut self, new: Vec<Vec<u8>>) {
        let mut merged = memory::list(self.keys.len() + new.len());
        let mut own = std::mem::take(&mut self.keys);
        // Start the merge at the end, so that each old key moves once.
        for key in new.into_iter().rev() {
            let at = own.partition_point(|own| *own < key);
            merged.extend(own.drain(at..).rev());
            self.bytes += key.len() + KEY_OVERHEAD;
            merged.push(key);
        }
        merged.extend(own.drain(..).rev());
        merged.reverse();
        self.keys = merged;
    }

    /// Drops the last keys while the window is too large.
    fn shorten(&mut self) {
        while self.bytes > MOST_BYTES
            && let Some(last) = self.keys.pop()
        {
            self.bytes -= last.len() + KEY_OVERHEAD;
            self.end = Some(last);
        }
    }
}

/// Returns the next byte string after this one.
pub fn after(key: &[u8]) -> Vec<u8> {
    let mut after = memory::list(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    after
}

/// The first keys in key order of all keys that were offered.
struct Least {
    heap: BinaryHeap<Vec<u8>>,
    bytes: usize,
    room: usize,
    /// The first key in key order that was offered and not kept. No later key is kept either.
    limit: Option<Vec<u8>>,
}

impl Least {
    fn new(room: usize) -> Least {
        Least {
            heap: BinaryHeap::new(),
            bytes: 0,
            room,
            limit: None,
        }
    }

    fn offer(&mut self, key: &[u8]) {
        if self.limit.as_ref().is_some_and(|limit| key >= &limit[..]) {
            return;
        }
        if self.heap.try_reserve(1).is_err() {
            memory::exhausted(self.heap.len() * 2 * size_of::<Vec<u8>>());
        }
        self.heap.push(memory::copy(key));
        self.bytes += key.len() + KEY_OVERHEAD;
        while self.is_over()
            && let Some(last) = self.heap.pop()
        {
            self.bytes -= last.len() + KEY_OVERHEAD;
            self.limit = Some(last);
        }
    }

    fn is_over(&self) -> bool {
        self.heap.len() > self.room || self.bytes > MOST_BYTES
    }
}
