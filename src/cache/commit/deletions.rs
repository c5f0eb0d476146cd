//! Remembers the keys and prefixes that a transaction has deleted. The transaction checks for their rows a second time
//! before the commit, while its marks are set.
//!
//! One check is not enough. A session that stores a loaded value writes the row first and checks its lease afterwards.
//! A deletion that checks for the row first and marks the key later may miss both: at the check the row is not visible
//! yet, and at the mark the lease has ended. A transaction skips the second check if no session has stored a loaded
//! value in the cache since the first check.

use std::collections::HashMap;

use pgrx::pg_sys::Oid;

use crate::cache::commit::invalidated_keys::MAX_KEYS;
use crate::cache::model::savepoints::{Join, Savepoints};
use crate::pg::events;
use crate::pg::memory;
use crate::pg::shmem::stores::StoresSeen;

/// The largest number of prefixes that a transaction remembers one by one. With more prefixes, the second check covers
/// all keys of the cache.
const MAX_PREFIXES: usize = 100;

/// The deleted keys and prefixes of one cache that need a second check.
pub struct SecondLook {
    pub relation: Oid,
    pub keys: Vec<Box<[u8]>>,
    pub prefixes: Vec<Box<[u8]>>,
}

/// A cache with deletions, and the state of its stores before the first check of its rows.
struct Seen {
    relation: u32,
    stores: StoresSeen,
}

/// The deletions under one savepoint. A rollback discards them. Otherwise the second check would remove other sessions'
/// rows under a key that was not deleted.
#[derive(Default)]
struct Acts {
    /// The deleted keys of each cache. The value is false if the transaction has written the key again after deleting
    /// it, so that its own row stays.
    keys: HashMap<u32, HashMap<Box<[u8]>, bool>>,
    prefixes: Vec<(u32, Box<[u8]>)>,
}

impl Join for Acts {
    fn join(&mut self, later: Acts) {
        for (relation, keys) in later.keys {
            let known = self.keys.entry(relation).or_default();
            for (key, is_deleted) in keys {
                set(known, key, is_deleted);
            }
        }
        self.prefixes.join(later.prefixes);
    }
}

/// The deletions of the current transaction.
#[derive(Default)]
pub(super) struct Deletions {
    caches: Vec<Seen>,
    acts: Savepoints<Acts>,
}

impl Deletions {
    pub(super) fn is_empty(&self) -> bool {
        self.caches.is_empty()
    }

    /// Notes that a cache has a deletion; called before the deletion checks for rows. `see` returns the current state
    /// of the stores.
    pub(super) fn note(&mut self, relation: u32, see: impl Fn() -> StoresSeen) {
        if !self.caches.iter().any(|one| one.relation == relation) {
            let stores = see();
            memory::push(&mut self.caches, Seen { relation, stores });
        }
    }

    /// Notes the deletion of a key. A savepoint remembers at most [`MAX_KEYS`] keys of a cache; further keys get only
    /// the first check.
    pub(super) fn delete(&mut self, relation: u32, key: &[u8]) {
        self.set(relation, key, true);
    }

    /// Notes that a key is written. Without this note, the second check would remove the transaction's own row if the
    /// transaction had deleted the key before.
    pub(super) fn write(&mut self, relation: u32, key: &[u8]) {
        let was_deleted = |acts: &Acts| {
            let keys = acts.keys.get(&relation);
            keys.is_some_and(|keys| keys.contains_key(key))
        };
        if !self.is_empty() && self.acts.iter().any(was_deleted) {
            self.set(relation, key, false);
        }
    }

    fn set(&mut self, relation: u32, key: &[u8], is_deleted: bool) {
        let acts = self.acts.at(events::nesting_level());
        let keys = acts.keys.entry(relation).or_default();
        let has_room = !is_deleted || keys.len() < MAX_KEYS;
        match keys.get_mut(key) {
            Some(known) => *known = is_deleted,
            None if has_room => set(keys, memory::copy(key).into_boxed_slice(), is_deleted),
            None => {}
        }
    }

    /// Notes the deletion of all keys with a prefix.
    pub(super) fn delete_prefix(&mut self, relation: u32, prefix: &[u8]) {
        let prefixes = &mut self.acts.at(events::nesting_level()).prefixes;
        let is_new = |known: &(u32, Box<[u8]>)| known.0 != relation || *known.1 != *prefix;
        if prefixes.len() >= MAX_PREFIXES {
            prefixes.retain(|(of, _)| *of != relation);
            memory::push(prefixes, (relation, Box::default()));
        } else if prefixes.iter().all(is_new) {
            let prefix = memory::copy(prefix).into_boxed_slice();
            memory::push(prefixes, (relation, prefix));
        }
    }

    /// Takes the deletions that need a second check: deletions in a cache where a session has stored a value since the
    /// first check.
    pub(super) fn take(&mut self, none_since: impl Fn(u32, StoresSeen) -> bool) -> Vec<SecondLook> {
        let mut acts = std::mem::take(&mut self.acts).into_one();
        let mut looks = Vec::new();
        for Seen { relation, stores } in std::mem::take(&mut self.caches) {
            if none_since(relation, stores) {
                continue;
            }
            let keys = acts.keys.remove(&relation).unwrap_or_default();
            let deleted = keys.into_iter().filter(|(_, is_deleted)| *is_deleted);
            let prefixes = acts.prefixes.extract_if(.., |(of, _)| *of == relation);
            let look = SecondLook {
                relation: Oid::from_u32(relation),
                keys: memory::collect(deleted.map(|(key, _)| key)),
                prefixes: memory::collect(prefixes.map(|(_, prefix)| prefix)),
            };
            memory::push(&mut looks, look);
        }
        looks
    }

    pub(super) fn release(&mut self, level: i32) {
        self.acts.release(level);
    }

    pub(super) fn roll_back(&mut self, level: i32) {
        self.acts.roll_back(level);
    }
}

fn set(keys: &mut HashMap<Box<[u8]>, bool>, key: Box<[u8]>, is_deleted: bool) {
    if keys.try_reserve(1).is_err() {
        memory::exhausted(keys.len() * 2 * size_of::<Box<[u8]>>());
    }
    keys.insert(key, is_deleted);
}
