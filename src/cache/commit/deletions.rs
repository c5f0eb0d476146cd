//! Deletions of a transaction that have found no row, or not all: what they must look for again once their
//! marks stand.
//!
//! A session that has loaded a value writes its row, and then asks whether its lease is void. A deletion
//! that looks, and marks later, meets neither a row that is not visible when it looks nor a lease that has
//! ended when it marks. So it looks twice, unless no session has stored anything meanwhile.

use pgrx::pg_sys::Oid;

use crate::cache::model::savepoints::Savepoints;
use crate::pg::events;
use crate::pg::memory;
use crate::pg::shmem::stores::StoresSeen;

/// Keys and prefixes to look for again in one cache.
pub struct SecondLook {
    pub relation: Oid,
    pub keys: Vec<Box<[u8]>>,
    pub prefixes: Vec<Box<[u8]>>,
}

/// A cache in which something was to be deleted.
pub(super) struct Deletion {
    pub(super) relation: u32,
    /// The stores that there were before the first look.
    pub(super) seen: StoresSeen,
    pub(super) prefixes: Vec<Box<[u8]>>,
}

#[derive(Default)]
pub(super) struct Deletions {
    caches: Vec<Deletion>,
    /// Keys that were written after their deletion, by savepoint.
    forgotten: Savepoints<Vec<(u32, Box<[u8]>)>>,
}

impl Deletions {
    pub(super) fn is_empty(&self) -> bool {
        self.caches.is_empty()
    }

    /// Notes a deletion before it looks; `see` says which stores there are.
    pub(super) fn note(
        &mut self,
        relation: u32,
        prefix: Option<&[u8]>,
        see: impl Fn() -> StoresSeen,
    ) {
        let known = self.caches.iter().position(|one| one.relation == relation);
        let place = known.unwrap_or_else(|| {
            let deletion = Deletion {
                relation,
                seen: see(),
                prefixes: Vec::new(),
            };
            memory::push(&mut self.caches, deletion);
            self.caches.len() - 1
        });
        if let Some(prefix) = prefix {
            let prefix = memory::copy(prefix).into_boxed_slice();
            memory::push(&mut self.caches[place].prefixes, prefix);
        }
    }

    pub(super) fn forget(&mut self, relation: u32, key: &[u8]) {
        let level = events::nesting_level();
        let key = memory::copy(key).into_boxed_slice();
        memory::push(self.forgotten.at(level), (relation, key));
    }

    pub(super) fn take(&mut self) -> Vec<Deletion> {
        std::mem::take(&mut self.caches)
    }

    pub(super) fn release(&mut self, level: i32) {
        self.forgotten.release(level);
    }

    pub(super) fn roll_back(&mut self, level: i32) -> Vec<(u32, Box<[u8]>)> {
        self.forgotten.roll_back(level)
    }
}
