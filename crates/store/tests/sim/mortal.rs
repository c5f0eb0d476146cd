//! Adds deadlines to a cache that has none: an entry past its deadline counts as a miss.
//!
//! The wrapper makes no sweep. An expired or removed entry occupies its memory until the policy evicts it, as in a
//! cache that checks deadlines only on reads.

use std::collections::HashMap;

use super::Cache;

pub struct Mortal<C> {
    cache: C,
    now: i64,
    deadline: i64,
    deadlines: HashMap<u64, i64>,
}

impl<C: Cache> Mortal<C> {
    pub fn new(cache: C) -> Mortal<C> {
        Mortal {
            cache,
            now: 0,
            deadline: i64::MAX,
            deadlines: HashMap::new(),
        }
    }
}

impl<C: Cache> Cache for Mortal<C> {
    fn request(&mut self, key: u64, size: usize) -> bool {
        let live = self.deadlines.get(&key).is_none_or(|end| self.now < *end);
        let hit = self.cache.request(key, size) && live;
        if !hit {
            self.deadlines.insert(key, self.deadline);
        }
        hit
    }

    fn at(&mut self, now: i64, deadline: i64) {
        (self.now, self.deadline) = (now, deadline);
    }

    fn store(&mut self, key: u64, size: usize) {
        self.cache.request(key, size);
        self.deadlines.insert(key, self.deadline);
    }

    fn remove(&mut self, key: u64) {
        self.deadlines.insert(key, i64::MIN);
    }
}
