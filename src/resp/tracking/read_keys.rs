//! The table of keys that the clients of one network process have read.
//!
//! The table's memory is bounded. Beyond a number of keys, or of readers of keys, each new key evicts another key, and
//! the clients that have read the evicted key are notified.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::rc::Rc;

use crate::pg::session::clock::Timestamp;

/// The average number of readers of a key beyond which keys are evicted, too. A disconnected client counts until it is
/// removed.
const READERS: usize = 64;

/// A key, and the clients that have read it.
pub struct Node {
    pub key: Rc<[u8]>,
    /// The clients' numbers, sorted.
    pub clients: Vec<u64>,
    /// The entry's deadline when the first of the clients read it. (A later change of the deadline counts as a change
    /// of the key.) For a table cache, each reader lowers it to the deadline of the row. None if the entry had no
    /// deadline, or if no reader has found the entry yet.
    deadline: Option<Timestamp>,
}

/// The keys of one cache.
#[derive(Default)]
struct Keys {
    places: HashMap<Rc<[u8]>, usize>,
    nodes: Vec<Node>,
    /// The position of the next key to evict.
    hand: usize,
}

impl Keys {
    fn remove_at(&mut self, place: usize) -> Node {
        let node = self.nodes.swap_remove(place);
        self.places.remove(&node.key);
        if let Some(moved) = self.nodes.get(place)
            && let Some(former) = self.places.get_mut(&moved.key)
        {
            *former = place;
        }
        node
    }
}

/// The deadlines of keys, the earliest first.
type Due = Reverse<(Timestamp, u32, Rc<[u8]>)>;

/// The keys of all caches, by slot.
#[derive(Default)]
pub struct Table {
    caches: HashMap<u32, Keys>,
    count: usize,
    /// The number of clients of all keys together.
    readers: usize,
    deadlines: BinaryHeap<Due>,
}

impl Table {
    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Notes that a client reads a key. Calls `deadline` only if no client has read the key before. Returns the key
    /// that was evicted to make room, if any.
    pub fn add(
        &mut self,
        slot: u32,
        key: &[u8],
        client: u64,
        most: usize,
        deadline: impl FnOnce() -> Option<Timestamp>,
    ) -> Option<Node> {
        let keys = self.caches.entry(slot).or_default();
        if let Some(&place) = keys.places.get(key) {
            if let Some(node) = keys.nodes.get_mut(place)
                && let Err(at) = node.clients.binary_search(&client)
            {
                node.clients.insert(at, client);
                self.readers += 1;
            }
            return self.evict_if_full(slot, most);
        }
        let key: Rc<[u8]> = key.into();
        let deadline = deadline();
        keys.places.insert(Rc::clone(&key), keys.nodes.len());
        if let Some(deadline) = deadline {
            self.deadlines
                .push(Reverse((deadline, slot, Rc::clone(&key))));
        }
        keys.nodes.push(Node {
            key,
            clients: vec![client],
            deadline,
        });
        self.count += 1;
        self.readers += 1;
        self.forget_old_deadlines();
        self.evict_if_full(slot, most)
    }

    /// Lowers the deadline of a noted key.
    pub fn set_deadline(&mut self, slot: u32, key: &[u8], deadline: Timestamp) {
        let Some(keys) = self.caches.get_mut(&slot) else {
            return;
        };
        let node = keys.places.get(key).and_then(|&at| keys.nodes.get_mut(at));
        if let Some(node) = node.filter(|node| node.deadline.is_none_or(|known| deadline < known)) {
            node.deadline = Some(deadline);
            let due = (deadline, slot, Rc::clone(&node.key));
            self.deadlines.push(Reverse(due));
            self.forget_old_deadlines();
        }
    }

    fn evict_if_full(&mut self, slot: u32, most: usize) -> Option<Node> {
        match self.count > most || self.readers > most.saturating_mul(READERS) {
            true => self.evict(slot),
            false => None,
        }
    }

    /// Evicts another key of this cache, or a key of another cache if this cache has no other key.
    fn evict(&mut self, slot: u32) -> Option<Node> {
        let has_others =
            |slot: u32, keys: &Keys, own: u32| keys.nodes.len() > usize::from(slot == own);
        let others = self
            .caches
            .get(&slot)
            .filter(|keys| has_others(slot, keys, slot))
            .map(|_| slot)
            .or_else(|| {
                let mut all = self.caches.iter();
                all.find(|(other, keys)| has_others(**other, keys, slot))
                    .map(|(other, _)| *other)
            })?;
        let keys = self.caches.get_mut(&others)?;
        // Does not choose the last key of this cache, which was just added.
        let choice = keys.nodes.len() - usize::from(others == slot);
        keys.hand = (keys.hand + 1) % choice;
        let node = keys.remove_at(keys.hand);
        self.count -= 1;
        self.readers -= node.clients.len();
        Some(node)
    }

    /// Removes a key that has changed, so that the clients that have read it are notified once.
    pub fn remove(&mut self, slot: u32, key: &[u8]) -> Option<Node> {
        let keys = self.caches.get_mut(&slot)?;
        let place = *keys.places.get(key)?;
        let node = keys.remove_at(place);
        self.count -= 1;
        self.readers -= node.clients.len();
        Some(node)
    }

    /// Removes all keys of a cache. Returns the clients that have read any of them.
    pub fn remove_cache(&mut self, slot: u32) -> HashSet<u64> {
        let Some(keys) = self.caches.remove(&slot) else {
            return HashSet::new();
        };
        self.count -= keys.nodes.len();
        let clients = || keys.nodes.iter().flat_map(|node| &node.clients);
        self.readers -= clients().count();
        clients().copied().collect()
    }

    /// Removes the next key whose deadline has passed, and returns it with the slot of its cache.
    pub fn take_due(&mut self, now: Timestamp) -> Option<(u32, Node)> {
        while self.next_deadline()? <= now {
            let Reverse((deadline, slot, key)) = self.deadlines.pop()?;
            let node = self.caches.get(&slot).and_then(|keys| {
                let place = *keys.places.get(&key)?;
                keys.nodes.get(place)
            });
            if node.is_some_and(|node| node.deadline == Some(deadline)) {
                return Some((slot, self.remove(slot, &key)?));
            }
        }
        None
    }

    /// Returns the earliest deadline.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines
            .peek()
            .map(|Reverse((deadline, ..))| *deadline)
    }

    /// Removes the deadlines of keys that were removed.
    fn forget_old_deadlines(&mut self) {
        if self.deadlines.len() <= 2 * self.count + 1024 {
            return;
        }
        let caches = &self.caches;
        self.deadlines.retain(|Reverse((deadline, slot, key))| {
            let keys = caches.get(slot);
            let node = keys.and_then(|keys| keys.nodes.get(*keys.places.get(key)?));
            node.is_some_and(|node| node.deadline == Some(*deadline))
        });
    }

    /// Removes the clients for which `lives` is false, because they have disconnected.
    pub fn retain_clients(&mut self, lives: impl Fn(u64) -> bool) {
        for keys in self.caches.values_mut() {
            for place in (0..keys.nodes.len()).rev() {
                let Some(node) = keys.nodes.get_mut(place) else {
                    continue;
                };
                let before = node.clients.len();
                node.clients.retain(|client| lives(*client));
                self.readers -= before - node.clients.len();
                if node.clients.is_empty() {
                    keys.remove_at(place);
                    self.count -= 1;
                }
            }
        }
    }
}
