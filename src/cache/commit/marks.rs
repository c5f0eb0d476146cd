//! Marks on the tier: what is set before a transaction's changes become visible, and undone after its end.
//!
//! Guards that each mark is undone exactly once: it is noted here before it is set, and everything that
//! may raise an error (memory for the note) comes before that. Which changes are marked when, and why that
//! is enough, is `changes`.

use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::{Key as HotKey, Why};
use pgrx::pg_sys::Oid;

use crate::cache::lease::leases;
use crate::cache::tier::{io, slots, walk};
use crate::pg::memory;
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

enum Mark {
    Key {
        hash: u64,
        voids: bool,
    },
    /// The leases of a whole cache, by its owner.
    Leases(u64),
    Cache(u32),
    /// A cache of which unnamed keys are removed: its copies stay, as each removed row has its own mark.
    Removal(u32),
    /// A key of a memory cache that nobody may store.
    Fence(u64),
    /// A memory cache in which nobody may store anything.
    FencedCache(u32),
    /// A writer whose cache has no slot, because all are taken.
    Global,
}

impl Marks {
    /// Unnamed keys of a cache are removed: all of its leases are void, and there are none until the commit
    /// is visible. Tokens of before count no more, those of all caches: it is rare, and one more word in
    /// every token would cost all of them.
    pub fn removal(&mut self, tier: &Tier, owner: u64) {
        if let Some(number) = self.slot_or_global(tier, owner) {
            memory::push(&mut self.0, Mark::Removal(number));
            tier.slot(number).pend.fetch_add(1, SeqCst);
            tier.control().global_epoch.fetch_add(1, SeqCst);
        }
        self.void_leases(tier, owner);
    }

    /// Comes after `pend` has risen: who is granted a lease in a partition before it is walked has it voided
    /// there, who asks later is refused.
    fn void_leases(&mut self, tier: &Tier, owner: u64) {
        memory::push(&mut self.0, Mark::Leases(owner));
        leases::void_all(tier, owner);
    }

    /// Definitions are noted of any relation, rows of caches only: a relation without a slot whose
    /// definition changes has no entries, and one that gets a slot later begins suspended.
    pub fn table(&mut self, tier: &Tier, relation: u32, extent: Extent) {
        let owner = slots::owner_of(Oid::from_u32(relation));
        let slot = match extent {
            Extent::Rows => self.slot_or_global(tier, owner),
            Extent::Definition => slots::find(tier, owner),
        };
        if let Some(number) = slot {
            self.slot(tier, number, extent);
        }
        self.void_leases(tier, owner);
    }

    fn slot(&mut self, tier: &Tier, number: u32, extent: Extent) {
        let slot = tier.slot(number);
        if slot.memory.load(SeqCst) != 0 {
            return; // its entries do not come from a table
        }
        memory::push(&mut self.0, Mark::Cache(number));
        slot.pend.fetch_add(1, SeqCst);
        if extent == Extent::Definition {
            slot.suspended.store(1, SeqCst);
        }
        slot.version.store(tier.new_version(), SeqCst);
    }

    /// Keys of a table cache; with each whether its lease is void.
    pub fn keys<'k>(
        &mut self,
        tier: &Tier,
        relation: u32,
        keys: impl Iterator<Item = (&'k [u8], bool)>,
    ) {
        let owner = slots::owner_of(Oid::from_u32(relation));
        // The slot first: whoever gets one later finds the stripes or the global pair marked.
        let slot = self.slot_or_global(tier, owner);
        for (bytes, voids) in keys {
            let key = HotKey {
                hash: io::hash(tier, owner, bytes),
                cache: slot.unwrap_or(u32::MAX),
                bytes,
            };
            self.key(tier, &key, voids);
        }
    }

    fn key(&mut self, tier: &Tier, key: &HotKey, voids: bool) {
        let hash = key.hash;
        memory::push(&mut self.0, Mark::Key { hash, voids });
        let voided = tier.change(tier.region().partition_of(hash), |partition| {
            partition.mark(key);
            voids && leases::void(tier, hash)
        });
        if voided {
            leases::wake_waiting(tier, hash);
        }
    }

    /// Removes entries of a memory cache and keeps them from being stored until the transaction has ended.
    pub fn fence<'k>(
        &mut self,
        tier: &Tier,
        slot: u32,
        owner: u64,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        let mut all_fenced = false;
        for bytes in keys {
            let key = HotKey {
                hash: io::hash(tier, owner, bytes),
                cache: slot,
                bytes,
            };
            // The fence first: what is stored before it stands is removed after it.
            if !all_fenced && !self.fence_key(tier, key.hash) {
                all_fenced = true;
                self.fence_cache(tier, slot);
            }
            self.key(tier, &key, true);
        }
    }

    /// False when there is no room for another fence.
    fn fence_key(&mut self, tier: &Tier, hash: u64) -> bool {
        memory::push(&mut self.0, Mark::Fence(hash));
        let raised = tier.control().fences.raise(hash);
        if !raised {
            self.0.pop();
        }
        raised
    }

    fn fence_cache(&mut self, tier: &Tier, slot: u32) {
        memory::push(&mut self.0, Mark::FencedCache(slot));
        tier.slot(slot).pend.fetch_add(1, SeqCst);
    }

    /// The same for all entries of a memory cache.
    pub fn fence_all(&mut self, tier: &Tier, slot: u32, owner: u64) {
        self.fence_cache(tier, slot);
        self.void_leases(tier, owner);
        tier.slot(slot).version.store(tier.new_version(), SeqCst);
        let version = tier.slot(slot).version.load(SeqCst);
        walk::remove_entries(tier, slot, Why::Invalidated, |entry| {
            entry.header().version < version
        });
    }

    /// The slot of a cache that was written; without a free one, the global pair is marked instead.
    fn slot_or_global(&mut self, tier: &Tier, owner: u64) -> Option<u32> {
        memory::push(&mut self.0, Mark::Global);
        let mut is_global = false;
        let slot = slots::assign_or(tier, owner, || {
            tier.control().global_pend.fetch_add(1, SeqCst);
            tier.control().global_epoch.fetch_add(1, SeqCst);
            is_global = true;
        });
        if !is_global {
            self.0.pop();
        }
        slot
    }

    /// Undoes all of them, backwards.
    pub fn undo(self, tier: &Tier) {
        for mark in self.0.iter().rev() {
            mark.undo(tier);
        }
    }
}

impl Mark {
    fn undo(&self, tier: &Tier) {
        match *self {
            Mark::Key { hash, voids } => {
                let voided = tier.change(tier.region().partition_of(hash), |partition| {
                    partition.unmark(hash);
                    voids && leases::void(tier, hash)
                });
                if voided {
                    leases::wake_waiting(tier, hash);
                }
            }
            Mark::Leases(owner) => leases::void_all(tier, owner),
            Mark::Cache(number) => {
                let slot = tier.slot(number);
                slot.version.store(tier.new_version(), SeqCst);
                slot.pend.fetch_sub(1, SeqCst);
            }
            Mark::Removal(number) => {
                tier.slot(number).pend.fetch_sub(1, SeqCst);
            }
            Mark::Fence(hash) => tier.control().fences.lower(hash),
            Mark::FencedCache(number) => {
                tier.slot(number).pend.fetch_sub(1, SeqCst);
            }
            Mark::Global => {
                tier.control().global_epoch.fetch_add(1, SeqCst);
                tier.control().global_pend.fetch_sub(1, SeqCst);
            }
        }
    }
}
