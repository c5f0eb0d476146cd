//! Marks on the tier: what is set before a transaction's changes become visible, and undone after
//! its end.
//!
//! Guards that each mark is undone exactly once: it is noted here before it is set, and everything
//! that may raise an error (memory for the note) comes before that. Which changes are marked when,
//! and why that is enough, is `changes`.

use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::{Key as HotKey, RemovalCause};
use pgrx::pg_sys::Oid;

use super::prepare;
use crate::cache::lease::leases;
use crate::cache::lease::lowering::{Mark, NO_SLOT};
use crate::cache::tier::hashed_key::hot_key;
use crate::cache::tier::{slots, walk};
use crate::error::Error;
use crate::pg::memory;
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::prepared::Record;
use crate::pg::shmem::tier::Tier;

/// How a table changed as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Its rows.
    Rows,
    /// Its definition or triggers: nothing may be filled until somebody has verified them.
    Definition,
}

/// Everything to undo after the end of the transaction.
#[derive(Default)]
pub struct Marks(Vec<Mark>);

impl Marks {
    /// Unnamed keys of a cache are removed: all of its leases are void, and there are none until
    /// the commit is visible. Tokens that were taken before no longer hold, whatever their cache:
    /// this is rare, and one more word in each token would cost every read.
    pub fn removal(&mut self, tier: &Tier, cache: CacheId) {
        if let Some(number) = self.slot_or_global(tier, cache) {
            memory::push(&mut self.0, Mark::Pending(number));
            tier.slot(number).pending_writers.fetch_add(1, SeqCst);
            tier.control().global_epoch.fetch_add(1, SeqCst);
        }
        self.void_leases(tier, cache);
    }

    /// Comes after `pending_writers` has risen: who is granted a lease in a partition before it is
    /// walked has it voided there, who asks later is refused.
    fn void_leases(&mut self, tier: &Tier, cache: CacheId) {
        memory::push(&mut self.0, Mark::Leases(cache));
        leases::void_all(tier, cache);
    }

    /// Definitions are noted of any relation, rows of caches only: a relation without a slot whose
    /// definition changes has no entries, and one that gets a slot later begins suspended.
    pub fn table(&mut self, tier: &Tier, relation: u32, extent: Extent) {
        let cache = CacheId::of(Oid::from_u32(relation));
        let slot = match extent {
            Extent::Rows => self.slot_or_global(tier, cache),
            Extent::Definition => slots::find(tier, cache),
        };
        if let Some(number) = slot {
            self.slot(tier, number, extent);
        }
        self.void_leases(tier, cache);
    }

    fn slot(&mut self, tier: &Tier, number: u32, extent: Extent) {
        let slot = tier.slot(number);
        if slot.memory_id.load(SeqCst) != 0 {
            return; // its entries do not come from a table
        }
        memory::push(&mut self.0, Mark::Cache(number));
        slot.pending_writers.fetch_add(1, SeqCst);
        if extent == Extent::Definition && !fault::on(Fault::NotSuspended) {
            slot.suspended.store(1, SeqCst);
        }
        if !fault::on(Fault::CacheKeepsVersion) {
            tier.renew_version(number);
        }
        if fault::on(Fault::CacheNotPending)
            && let Some(mark) = self.0.pop()
        {
            mark.undo(tier, None);
        }
    }

    /// Keys of a table cache; with each whether its lease is void.
    pub fn keys<'k>(
        &mut self,
        tier: &Tier,
        relation: u32,
        keys: impl Iterator<Item = (&'k [u8], bool)>,
    ) {
        let cache = CacheId::of(Oid::from_u32(relation));
        // The slot first: whoever gets one later finds the stripes or the global pair marked.
        let slot = self.slot_or_global(tier, cache);
        for (bytes, voids_lease) in keys {
            let key = hot_key(tier, cache, slot.unwrap_or(NO_SLOT), bytes);
            self.key(tier, &key, voids_lease);
        }
    }

    fn key(&mut self, tier: &Tier, key: &HotKey, voids_lease: bool) {
        let hash = key.hash;
        let mark = Mark::Key {
            hash,
            slot: key.cache,
            voids_lease,
        };
        memory::push(&mut self.0, mark);
        let marked = match fault::on(Fault::MarkKeepsEntry) {
            true => HotKey { bytes: b"", ..*key },
            false => *key,
        };
        let voided = tier.change(tier.region().partition_of(hash), |partition| {
            partition.mark(&marked);
            voids_lease && leases::void(tier, hash)
        });
        if voided {
            leases::wake_waiting(tier, hash);
        }
        if fault::on(Fault::KeyNotPending)
            && let Some(mark) = self.0.pop()
        {
            mark.undo(tier, None);
        }
    }

    /// Removes entries of a memory cache and keeps them from being stored until the transaction has
    /// ended.
    pub fn fence<'k>(
        &mut self,
        tier: &Tier,
        slot: u32,
        cache: CacheId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        let mut all_fenced = false;
        for bytes in keys {
            let key = hot_key(tier, cache, slot, bytes);
            // The fence first: what is stored before it stands is removed after it.
            if !all_fenced && !self.fence_key(tier, slot, key.hash) {
                all_fenced = true;
                self.fence_cache(tier, slot);
            }
            self.key(tier, &key, true);
        }
    }

    /// False when there is no room for another fence.
    fn fence_key(&mut self, tier: &Tier, slot: u32, hash: u64) -> bool {
        memory::push(&mut self.0, Mark::Fence { hash, slot });
        let raised = tier.control().fences.raise(hash);
        if !raised {
            self.0.pop();
        }
        raised
    }

    fn fence_cache(&mut self, tier: &Tier, slot: u32) {
        memory::push(&mut self.0, Mark::FencedCache(slot));
        tier.slot(slot).pending_writers.fetch_add(1, SeqCst);
    }

    /// Removes all entries of a memory cache and keeps any from being stored until the transaction
    /// has ended.
    pub fn fence_all(&mut self, tier: &Tier, slot: u32, cache: CacheId) {
        self.fence_cache(tier, slot);
        self.void_leases(tier, cache);
        tier.renew_version(slot);
        let version = tier.slot(slot).version.load(SeqCst);
        walk::remove_entries(tier, slot, RemovalCause::Invalidated, |entry| {
            entry.header().version < version
        });
    }

    /// The slot of a cache that was written; without a free one, the global pair is marked instead.
    fn slot_or_global(&mut self, tier: &Tier, cache: CacheId) -> Option<u32> {
        memory::push(&mut self.0, Mark::Global);
        let mut is_global = false;
        let slot = slots::assign_or(tier, cache, || {
            tier.control().global_pending_writers.fetch_add(1, SeqCst);
            tier.control().global_epoch.fetch_add(1, SeqCst);
            is_global = true;
        });
        if is_global && fault::on(Fault::GlobalNotMarked) {
            tier.control().global_pending_writers.fetch_sub(1, SeqCst);
            is_global = false;
        }
        if !is_global {
            self.0.pop();
        }
        slot
    }

    /// Hands all of them over to the record of a transaction that is being prepared.
    pub fn hand_over(&mut self, tier: &Tier, record: Record) -> Result<(), Error> {
        prepare::hand_over(tier, record, &mut self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts some before the others: they are undone last.
    pub fn put_first(&mut self, mut marks: Vec<Mark>) {
        if !marks.is_empty() {
            for mark in std::mem::take(&mut self.0) {
                memory::push(&mut marks, mark);
            }
            self.0 = marks;
        }
    }

    /// Adds one that is set already, or that only says what is to be done at the end.
    pub fn add(&mut self, mark: Mark) {
        memory::push(&mut self.0, mark);
    }

    /// Undoes all of them, backwards.
    pub fn undo(self, tier: &Tier, committed: bool) {
        for mark in self.0.iter().rev() {
            mark.undo(tier, Some(committed));
        }
    }
}
