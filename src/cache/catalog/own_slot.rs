//! Finds or assigns a cache's slot in the hot tier, and updates the statistics that the slot holds.

use std::sync::atomic::Ordering::SeqCst;

use super::cache::{Cache, Storage};
use crate::cache::tier::{slot_shares, slots};
use crate::pg::session;
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::slot::Counter;
use crate::pg::shmem::tier::{Tier, tier};

impl Cache {
    /// Returns the cache's slot in the tier, if it has one.
    #[inline]
    pub fn slot(&self, tier: &Tier) -> Option<u32> {
        let known = self
            .kept
            .slot
            .get()
            .filter(|&slot| tier.cache_of(slot).is(self.id, SeqCst));
        if known.is_none() {
            let found = slots::find(tier, self.id);
            self.kept
                .slot
                .set(found.filter(|&slot| self.is_own(tier, slot)));
        }
        self.kept.slot.get()
    }

    /// Returns the cache's slot, and assigns one if the cache has none. Returns None if all slots are taken, or if the
    /// table is temporary.
    pub fn slot_or_new(&self, tier: &Tier) -> Option<u32> {
        if self.temporary {
            return None;
        }
        self.slot(tier).or_else(|| {
            if slots::find(tier, self.id).is_some_and(|slot| !self.is_own(tier, slot)) {
                slots::free(tier, self.id);
            }
            let slot = slots::assign(tier, self.id, self.memory_id());
            self.follow_share(None);
            slot
        })
    }

    /// Writes the share from the cache's definition into its slot, if the two differ. A session that is changing the
    /// definition leaves the slot alone until its commit. If a share was written after the count `seen` was read, the
    /// definition may be outdated: writes nothing, and returns false.
    pub(super) fn follow_share(&self, seen: Option<u64>) -> bool {
        let Some((tier, slot)) = tier().and_then(|tier| Some((tier, self.slot(tier)?))) else {
            return true;
        };
        let follows =
            !slot_shares::is_changing(self.relation) || fault::on(Fault::ShareBeforeCommit);
        !follows || slot_shares::put(tier, slot, self.id, slot_shares::of(&self.settings), seen)
    }

    /// Returns whether no session has opened the cache since its slot survived a promotion of this server, or was
    /// restored with its entries at the start.
    #[inline]
    pub fn is_to_open(&self) -> bool {
        let slot = || tier().and_then(|tier| Some(tier.slot(self.slot(tier)?)));
        let recovered = slot().is_some_and(|slot| slot.recovered.load(SeqCst) != 0);
        recovered && !session::in_recovery()
    }

    /// Returns whether the slot belongs to this cache. It may belong to a dropped relation with the same OID, because a
    /// standby is not notified of a drop, and a new relation may get the OID.
    fn is_own(&self, tier: &Tier, slot: u32) -> bool {
        tier.slot(slot).memory_id.load(SeqCst) == self.memory_id()
            || fault::on(Fault::MemoryIdNotCompared)
    }

    /// Returns the id that identifies a memory cache in its slot; 0 for a table.
    fn memory_id(&self) -> u64 {
        match self.storage {
            Storage::Memory => self.settings.id.unwrap_or(0).max(1),
            _ => 0,
        }
    }

    /// Adds to one of the counters of this cache.
    pub fn count(&self, counter: Counter, times: u64) {
        let Some(tier) = tier() else {
            return;
        };
        // A memory cache without a slot was dropped and must not get another slot.
        let slot = match self.storage {
            Storage::Memory => self.slot(tier),
            _ => self.slot_or_new(tier),
        };
        if let Some(slot) = slot {
            tier.slot(slot).count(counter, times);
        }
    }
}
