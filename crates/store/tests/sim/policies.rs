//! LRU, S3-FIFO and SIEVE as in their papers, with sizes in bytes and without any overhead.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::Cache;

#[derive(Default)]
pub struct Lru {
    capacity: usize,
    used: usize,
    clock: u64,
    by_key: HashMap<u64, (u64, usize)>,
    by_age: BTreeMap<u64, u64>,
}

impl Lru {
    pub fn new(capacity: usize) -> Lru {
        Lru {
            capacity,
            ..Lru::default()
        }
    }
}

impl Cache for Lru {
    fn request(&mut self, key: u64, size: usize) -> bool {
        self.clock += 1;
        let old = self.by_key.insert(key, (self.clock, size));
        self.by_age.insert(self.clock, key);
        if let Some((age, _)) = old {
            self.by_age.remove(&age);
            return true;
        }
        self.used += size;
        while self.used > self.capacity {
            let (_, oldest) = self.by_age.pop_first().unwrap();
            self.used -= self.by_key.remove(&oldest).unwrap().1;
        }
        false
    }
}

/// The paper's three queues: small 10 %, main 90 %, ghosts for as many bytes as main.
pub struct S3Fifo {
    small_share: usize,
    capacity: usize,
    promote: u8,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: VecDeque<(u64, usize)>,
    ghost_set: HashSet<u64>,
    ghost_limit: usize,
    bytes: [usize; 3],
    entries: HashMap<u64, (usize, u8)>,
}

impl S3Fifo {
    pub fn textbook(capacity: usize) -> S3Fifo {
        S3Fifo::new(capacity, 10, 90, 2)
    }

    pub fn new(capacity: usize, small: usize, ghosts: usize, promote: u8) -> S3Fifo {
        S3Fifo {
            small_share: capacity / 100 * small,
            capacity,
            promote,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            ghost_set: HashSet::new(),
            ghost_limit: capacity / 100 * ghosts,
            bytes: [0; 3],
            entries: HashMap::new(),
        }
    }

    fn evict(&mut self) {
        if self.bytes[0] > self.small_share || self.main.is_empty() {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    fn evict_small(&mut self) {
        let Some(key) = self.small.pop_back() else {
            return;
        };
        let (size, hits) = self.entries[&key];
        self.bytes[0] -= size;
        if hits >= self.promote {
            self.entries.insert(key, (size, 0));
            self.main.push_front(key);
            self.bytes[1] += size;
            return;
        }
        self.entries.remove(&key);
        self.ghosts.push_front((key, size));
        self.ghost_set.insert(key);
        self.bytes[2] += size;
        while self.bytes[2] > self.ghost_limit {
            let (old, size) = self.ghosts.pop_back().unwrap();
            self.ghost_set.remove(&old);
            self.bytes[2] -= size;
        }
    }

    fn evict_main(&mut self) {
        let Some(key) = self.main.pop_back() else {
            return;
        };
        let (size, hits) = self.entries[&key];
        if hits > 0 {
            self.entries.insert(key, (size, hits - 1));
            self.main.push_front(key);
            return;
        }
        self.entries.remove(&key);
        self.bytes[1] -= size;
    }
}

impl Cache for S3Fifo {
    fn request(&mut self, key: u64, size: usize) -> bool {
        if let Some((_, hits)) = self.entries.get_mut(&key) {
            *hits = (*hits + 1).min(3);
            return true;
        }
        while self.bytes[0] + self.bytes[1] + size > self.capacity {
            self.evict();
        }
        let main = self.ghost_set.remove(&key);
        if main {
            let at = self.ghosts.iter().position(|ghost| ghost.0 == key);
            // A ghost that has left the set keeps its position in the queue, as in an implementation that uses tags.
            if let Some(at) = at.filter(|_| self.ghosts.len() < 4096) {
                self.bytes[2] -= self.ghosts.remove(at).unwrap().1;
            }
        }
        self.entries.insert(key, (size, 0));
        let queue = if main {
            &mut self.main
        } else {
            &mut self.small
        };
        queue.push_front(key);
        self.bytes[usize::from(main)] += size;
        false
    }
}

/// A cache with one queue, and a hand that skips visited entries and stays at the position of its last eviction.
pub struct Sieve {
    capacity: usize,
    used: usize,
    /// The entries by age: number at insertion -> (key, size, visited).
    queue: BTreeMap<u64, (u64, usize, bool)>,
    by_key: HashMap<u64, u64>,
    clock: u64,
    hand: u64,
}

impl Sieve {
    pub fn new(capacity: usize) -> Sieve {
        Sieve {
            capacity,
            used: 0,
            queue: BTreeMap::new(),
            by_key: HashMap::new(),
            clock: 0,
            hand: 0,
        }
    }

    fn evict(&mut self) {
        loop {
            let next = self.queue.range(self.hand..).next().map(|(age, _)| *age);
            let Some(age) = next else {
                self.hand = 0;
                continue;
            };
            let entry = self.queue.get_mut(&age).unwrap();
            self.hand = age + 1;
            if entry.2 {
                entry.2 = false;
                continue;
            }
            let (key, size, _) = *entry;
            self.queue.remove(&age);
            self.by_key.remove(&key);
            self.used -= size;
            return;
        }
    }
}

impl Cache for Sieve {
    fn request(&mut self, key: u64, size: usize) -> bool {
        if let Some(age) = self.by_key.get(&key) {
            self.queue.get_mut(age).unwrap().2 = true;
            return true;
        }
        self.used += size;
        while self.used > self.capacity {
            self.evict();
        }
        self.clock += 1;
        self.queue.insert(self.clock, (key, size, false));
        self.by_key.insert(key, self.clock);
        false
    }
}
