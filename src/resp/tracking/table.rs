//! Which clients have read which keys: a network process' own table.
//!
//! Guards its bound: beyond so many keys, or so many readers of keys, one key that is there goes for each
//! that comes, and its clients are told.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::rc::Rc;

use crate::pg::session::clock::Timestamp;

/// Readers that a key may have, on average: beyond that, too, keys go. Who is gone counts until it is
/// forgotten.
const READERS: usize = 64;

/// A key that somebody has read.
pub struct Node {
    pub key: Rc<[u8]>,
    /// Sorted.
    pub clients: Vec<u64>,
    /// When its entry ends, as it was when the first of them read it: a later one is a change. Of a table
    /// each reader finds the row's, or none where there was no copy.
    deadline: Option<Timestamp>,
}

/// The keys of one cache.
#[derive(Default)]
struct Keys {
    places: HashMap<Rc<[u8]>, usize>,
    nodes: Vec<Node>,
    /// Where the next key is taken that goes for another.
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

/// When a key of a cache expires, the first one first.
type Due = Reverse<(Timestamp, u32, Rc<[u8]>)>;

/// The keys of all caches, by their slots.
#[derive(Default)]
pub struct Table {
    caches: HashMap<u32, Keys>,
    count: usize,
    /// All keys' clients together.
    readers: usize,
    deadlines: BinaryHeap<Due>,
}

impl Table {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// A client reads a key. `deadline` is asked for where nobody has read it yet. Gives what has to
    /// go for it.
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

    /// The entry of a key that was noted ends then, or sooner.
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

    /// One of this cache's other keys, or of another cache where it has none.
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
        // The last one has just come.
        let choice = keys.nodes.len() - usize::from(others == slot);
        keys.hand = (keys.hand + 1) % choice;
        let node = keys.remove_at(keys.hand);
        self.count -= 1;
        self.readers -= node.clients.len();
        Some(node)
    }

    /// A key changes: who has read it is told once.
    pub fn remove(&mut self, slot: u32, key: &[u8]) -> Option<Node> {
        let keys = self.caches.get_mut(&slot)?;
        let place = *keys.places.get(key)?;
        let node = keys.remove_at(place);
        self.count -= 1;
        self.readers -= node.clients.len();
        Some(node)
    }

    /// All keys of a cache change: who has read any.
    pub fn remove_cache(&mut self, slot: u32) -> HashSet<u64> {
        let Some(keys) = self.caches.remove(&slot) else {
            return HashSet::new();
        };
        self.count -= keys.nodes.len();
        let clients = || keys.nodes.iter().flat_map(|node| &node.clients);
        self.readers -= clients().count();
        clients().copied().collect()
    }

    /// The next key whose entry has ended, and its cache's slot.
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

    /// When the next entry ends.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines
            .peek()
            .map(|Reverse((deadline, ..))| *deadline)
    }

    /// Keys that were removed leave their deadlines behind.
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

    /// Forgets the clients of which `lives` is false: those that are gone.
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
