//! A compact set of keys in insertion order, for a transaction that changes hundreds of thousands of rows.
//!
//! The bytes of all keys are stored one after another, so that no key needs its own allocation; a hash table of tags,
//! at most half full, locates them. The set grows with the changes of a user, so it allocates through `pg::memory`,
//! where a lack of memory is an error and not a crash.

use std::cell::OnceCell;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::pg::memory;
use crate::pg::session::random;

/// A set of keys in insertion order. The number of a key is its position in this order.
#[derive(Default)]
pub struct Keys {
    bytes: Vec<u8>,
    /// The end of each key. A key begins where the previous key ends.
    ends: Vec<usize>,
    /// A hash table whose size is a power of two. An element is 0 if it is free; otherwise it holds 32 bits of a key's
    /// hash and the key's number plus 1.
    places: Vec<u64>,
}

thread_local! {
    /// A random seed, so that a client cannot choose keys that collide.
    static SEED: OnceCell<u64> = const { OnceCell::new() };
}

fn tag(key: &[u8]) -> u32 {
    let seed = SEED.with(|seed| *seed.get_or_init(random::number));
    (xxh3_64_with_seed(key, seed) >> 32) as u32
}

impl Keys {
    pub fn insert(&mut self, key: &[u8]) {
        self.make_room();
        let tag = tag(key);
        if let Err(free) = self.look(key, tag) {
            self.bytes.try_reserve(key.len()).unwrap_or_else(|_| {
                memory::exhausted(self.bytes.len().saturating_mul(2));
            });
            self.bytes.extend_from_slice(key);
            memory::push(&mut self.ends, self.bytes.len());
            self.places[free] = u64::from(tag) << 32 | self.ends.len() as u64;
        }
    }

    pub fn insert_all(&mut self, keys: &Keys) {
        keys.iter().for_each(|key| self.insert(key));
    }

    /// Returns the number of a key, counted from 0; None if the set does not contain the key.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        match self.is_empty() {
            true => None,
            false => self.look(key, tag(key)).ok(),
        }
    }

    /// Returns the key with this number.
    pub fn get(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[number]]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|number| self.get(number))
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the approximate memory size of the set.
    pub fn size(&self) -> usize {
        self.bytes.len()
            + self.ends.len() * size_of::<usize>()
            + self.places.len() * size_of::<u64>()
    }

    /// Sorts key numbers in the order of the keys. Keeps the eight bytes of each key that follow the common prefix next
    /// to the key's number; reads the rest of a key only if these bytes are equal.
    pub fn sort<T>(&self, numbered: &mut Vec<T>, number: impl Fn(&T) -> usize) {
        let same = self.common_prefix();
        let mut ranked = memory::list(numbered.len());
        ranked.extend(
            numbered
                .drain(..)
                .map(|one| (rank(&self.get(number(&one))[same..]), one)),
        );
        ranked.sort_unstable_by(|(rank, one), (other_rank, other)| {
            let rest = || self.get(number(one)).cmp(self.get(number(other)));
            rank.cmp(other_rank).then_with(rest)
        });
        numbered.extend(ranked.into_iter().map(|(_, one)| one));
    }

    /// Returns the length of the common prefix of all keys, in bytes.
    fn common_prefix(&self) -> usize {
        let first = if self.is_empty() { &[] } else { self.get(0) };
        self.iter().fold(first.len(), |same, key| {
            let differs = first[..same]
                .iter()
                .zip(key)
                .position(|(one, other)| one != other);
            differs.unwrap_or(same.min(key.len()))
        })
    }

    /// Returns the number of a key, or, as an error, the index of the table's element for the key.
    fn look(&self, key: &[u8], tag: u32) -> Result<usize, usize> {
        let mask = self.places.len() - 1;
        let mut place = tag as usize & mask;
        loop {
            match self.places[place] {
                0 => return Err(place),
                taken if (taken >> 32) as u32 == tag => {
                    let number = (taken as u32) as usize - 1;
                    if self.get(number) == key {
                        return Ok(number);
                    }
                }
                _ => {}
            }
            place = (place + 1) & mask;
        }
    }

    /// Grows the table if one more key would fill more than half of it.
    fn make_room(&mut self) {
        if (self.len() + 1) * 2 <= self.places.len() {
            return;
        }
        let size = (self.places.len() * 2).max(16);
        let mut places: Vec<u64> = memory::list(size);
        places.resize(size, 0);
        for taken in self.places.iter().copied().filter(|&taken| taken != 0) {
            let mut place = (taken >> 32) as usize & (size - 1);
            while places[place] != 0 {
                place = (place + 1) & (size - 1);
            }
            places[place] = taken;
        }
        self.places = places;
    }
}

/// Returns the first eight bytes as a number that sorts like the bytes.
fn rank(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = bytes.len().min(8);
    first[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(first)
}
