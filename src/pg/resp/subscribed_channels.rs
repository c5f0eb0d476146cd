//! The channels and patterns to which the clients of each network process have subscribed. The other network processes
//! read them to know where to send a message. Each process has one table in shared memory for channels and one for
//! patterns.
//!
//! Only the network process that owns a table writes it, without a lock. The table's size is fixed. If the table has no
//! room for a name, or if writes overlap with every attempt to read it, the name's number of clients counts as unknown.
//! The sender then sends the message to the owning process in any case, which finds the subscribers itself.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use pgcache_store::seqlock::{Seqlock, store_text};

/// The hash in a slot whose name was removed. 0 marks an unused slot.
const REMOVED: u64 = 1;
/// The smallest hash of a name, greater than both marks.
const FIRST_HASH: u64 = 2;

/// Names, and the number of clients that have subscribed to each. The table has a fixed number of slots, three
/// quarters of which may be used, and a fixed number of words of text.
#[repr(C)]
pub struct Names<const SLOTS: usize, const WORDS: usize> {
    version: Seqlock,
    /// The number of names.
    names: AtomicU64,
    /// The number of slots ever used.
    used: AtomicU64,
    /// The number of words of text in use.
    end: AtomicU64,
    /// 1 if the table lacks names for which it had no room.
    incomplete: AtomicU64,
    /// The slots. The first word holds the hash of a name; the second word holds the number of clients in its lower
    /// half, and the position of the text in its upper half.
    slots: [[AtomicU64; 2]; SLOTS],
    /// The texts, each preceded by its length in bytes.
    words: [AtomicU64; WORDS],
}

/// The channels of a network process.
pub type Channels = Names<16_384, 65_536>;
/// The patterns of a network process. A sender compares each message's channel with all of them.
pub type Patterns = Names<1024, 16_384>;

/// The names to which a network process's clients have subscribed.
#[repr(C, align(64))]
pub struct Readers {
    pub channels: Channels,
    pub patterns: Patterns,
}

fn hash_of(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish().max(FIRST_HASH)
}

fn about(count: usize, place: usize) -> u64 {
    count.min(u32::MAX as usize) as u64 | (place as u64) << 32
}

fn count_of(about: u64) -> usize {
    (about & u64::from(u32::MAX)) as usize
}

fn place_of(about: u64) -> usize {
    (about >> 32) as usize
}

impl<const SLOTS: usize, const WORDS: usize> Names<SLOTS, WORDS> {
    /// Returns the number of clients that have subscribed to a name, or None if it is unknown.
    pub fn count(&self, name: &[u8]) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        let found = self
            .version
            .read(|| self.find(name).map(|(_, about)| count_of(about)))?;
        match found {
            None if self.is_incomplete() => None,
            found => Some(found.unwrap_or(0)),
        }
    }

    /// Returns all names with their numbers of clients, and whether the list is complete.
    pub fn all(&self) -> (Vec<(Vec<u8>, usize)>, bool) {
        if self.is_empty() {
            return (Vec::new(), true);
        }
        let all = self.version.read(|| {
            let slots = self.slots.iter().map(|slot| {
                let is_used = slot[0].load(Relaxed) >= FIRST_HASH;
                let about = slot[1].load(Relaxed);
                is_used.then(|| (self.text(place_of(about)), count_of(about)))
            });
            slots.flatten().collect::<Vec<_>>()
        });
        let is_complete = all.is_some() && !self.is_incomplete();
        (all.unwrap_or_default(), is_complete)
    }

    /// Returns whether no client has subscribed to any name.
    pub fn is_empty(&self) -> bool {
        self.names.load(Acquire) == 0 && !self.is_incomplete()
    }

    fn is_incomplete(&self) -> bool {
        self.incomplete.load(Acquire) != 0
    }

    fn slots_from(&self, hash: u64) -> impl Iterator<Item = usize> {
        (0..SLOTS).map(move |step| (hash as usize).wrapping_add(step) % SLOTS)
    }

    /// Returns the slot of a name and the slot's second word; None if the table lacks the name.
    fn find(&self, name: &[u8]) -> Option<(usize, u64)> {
        let hash = hash_of(name);
        for at in self.slots_from(hash) {
            match self.slots[at][0].load(Relaxed) {
                0 => return None,
                other if other == hash => {
                    let about = self.slots[at][1].load(Relaxed);
                    if self.is_text(place_of(about), name) {
                        return Some((at, about));
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn length(&self, place: usize) -> usize {
        let word = self.words.get(place);
        word.map_or(0, |word| word.load(Relaxed) as usize)
            .min(WORDS * 8)
    }

    fn bytes(&self, place: usize) -> impl Iterator<Item = u8> {
        let words = self.words.get(place + 1..).unwrap_or_default();
        let bytes = words
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes());
        bytes.take(self.length(place))
    }

    fn is_text(&self, place: usize, text: &[u8]) -> bool {
        self.length(place) == text.len() && self.bytes(place).eq(text.iter().copied())
    }

    fn text(&self, place: usize) -> Vec<u8> {
        self.bytes(place).collect()
    }

    /// Sets the number of clients that have subscribed to a name. Only the network process that owns the table calls
    /// this; `all` lists all of its names, in case the table must be rebuilt.
    pub fn set<'n, I: Iterator<Item = (&'n [u8], usize)>>(
        &self,
        name: &[u8],
        count: usize,
        all: impl Fn() -> I,
    ) {
        let _writing = self.version.write();
        match (self.find(name), count) {
            (Some((at, _)), 0) => {
                self.slots[at][0].store(REMOVED, Relaxed);
                let left = self.names.fetch_sub(1, Relaxed) - 1;
                if self.is_incomplete() && left < SLOTS as u64 / 4 {
                    self.fill(all());
                }
            }
            (Some((at, former)), _) => {
                self.slots[at][1].store(about(count, place_of(former)), Relaxed);
            }
            (None, 0) => {}
            (None, _) if self.is_incomplete() || self.add(name, count) => {}
            // The table has no room, perhaps because of removed names, so it is rebuilt.
            (None, _) => self.fill(all()),
        }
    }

    /// Empties the table.
    pub fn clear(&self) {
        let _writing = self.version.write();
        self.fill(std::iter::empty());
    }

    fn fill<'n>(&self, all: impl Iterator<Item = (&'n [u8], usize)>) {
        for slot in &self.slots {
            slot[0].store(0, Relaxed);
        }
        for counter in [&self.names, &self.used, &self.end, &self.incomplete] {
            counter.store(0, Relaxed);
        }
        for (name, count) in all {
            if count > 0 && !self.add(name, count) {
                self.incomplete.store(1, Release);
            }
        }
    }

    /// Adds a name that the table does not contain; returns false if the table has no room.
    fn add(&self, name: &[u8], count: usize) -> bool {
        let place = self.end.load(Relaxed) as usize;
        let length = 1 + name.len().div_ceil(8);
        let Some(words) = self.words.get(place..place + length) else {
            return false;
        };
        let used = self.used.load(Relaxed) + 1;
        if used > SLOTS as u64 / 4 * 3 {
            return false;
        }
        let hash = hash_of(name);
        let is_empty = |at: &usize| self.slots[*at][0].load(Relaxed) == 0;
        let Some(at) = self.slots_from(hash).find(is_empty) else {
            return false;
        };
        words[0].store(name.len() as u64, Relaxed);
        store_text(&words[1..], name);
        self.end.store((place + length) as u64, Relaxed);
        self.used.store(used, Relaxed);
        self.names.fetch_add(1, Release);
        self.slots[at][0].store(hash, Relaxed);
        self.slots[at][1].store(about(count, place), Relaxed);
        true
    }
}
