//! Sets a transaction's marks in the hot tier before its changes become visible, and undoes them after its end. While a
//! key or a cache is marked, no session fills in a copy or stores a loaded value for it. `changes` defines which
//! changes are marked and when.
//!
//! Each mark is undone exactly once. For this, a mark is added to the list before it is set. Every step that may raise
//! an error (memory for the list, a Postgres lock) comes before the mark is set.
//!
//! Marking assigns no slot. The mark of a key is on its hash; a cache without a slot that is marked as a whole is
//! locked in Postgres instead. A reader may assign a slot at the same time, so the transaction looks up the slot again
//! after marking or locking, as the model in `crates/coherence` requires.

use std::sync::atomic::Ordering::SeqCst;

use pgcache_store::{Key as HotKey, RemovalCause, SET_ROUNDS};
use pgrx::pg_sys::Oid;

use super::offers::{Offer, Offers, Published};
use super::prepare;
use crate::cache::lease::leases;
use crate::cache::lease::undo_marks::{Mark, NO_SLOT};
use crate::cache::tier::hashed_key::hot_key;
use crate::cache::tier::{slots, walk};
use crate::error::Error;
use crate::pg::memory;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::pause::{self, Window};
use crate::pg::session::{self, clock, lock};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::prepared::Record;
use crate::pg::shmem::tier::Tier;

/// The extent of a change to a table as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Its rows changed.
    Rows,
    /// Its definition or triggers changed: nothing may be filled in until a session has verified them.
    Definition,
}

/// The changes of a table as a whole.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    /// Whether all rows count as changed, so that no single key is noted.
    pub(super) rows: bool,
    /// Whether the definition or the triggers change. Such a change covers no row.
    pub(super) definition: bool,
    /// True once no savepoint can roll the change back.
    pub(super) stands: bool,
}

impl Whole {
    pub(super) fn of(extent: Extent, stands: bool) -> Whole {
        Whole {
            rows: extent == Extent::Rows,
            definition: extent == Extent::Definition,
            stands,
        }
    }

    pub(super) fn join(&mut self, later: Whole) {
        self.rows |= later.rows;
        self.definition |= later.definition;
        self.stands |= later.stands;
    }
}

/// The marks that the end of the transaction undoes.
#[derive(Default)]
pub struct Marks {
    list: Vec<Mark>,
    /// Slots that keep readers off because the mark of a key found no room, each listed once.
    full: Vec<u32>,
    /// Relations without a slot that are locked instead, each listed once.
    locked: Vec<u32>,
    /// Values to publish in place of the copies that the marks have removed.
    pub(super) offers: Offers,
}

impl Marks {
    /// Marks a cache that loses rows with unknown keys. Its leases become void, and no lease is granted until the
    /// commit is visible.
    pub fn removal(&mut self, tier: &Tier, cache: CacheId) {
        if let Some(number) = self.slot_or_lock(tier, cache) {
            self.pend(tier, number);
        }
        self.void_leases(tier, cache);
    }

    fn pend(&mut self, tier: &Tier, slot: u32) {
        memory::push(&mut self.list, Mark::Pending(slot));
        tier.slot(slot).pending_writers.fetch_add(1, SeqCst);
    }

    /// Voids all leases of a cache. Called after `pending_writers` has risen or the cache is locked. A lease that was
    /// granted before is voided by the walk over the partitions; a later request sees the mark or the lock, and is
    /// refused.
    fn void_leases(&mut self, tier: &Tier, cache: CacheId) {
        memory::push(&mut self.list, Mark::Leases(cache));
        leases::void_all(tier, cache);
    }

    /// Marks a table as a whole, and voids the leases of its cache. A change of a definition is noted for any relation,
    /// a change of rows only for a cache. A change of only the definition sets no mark on a relation without a slot:
    /// the relation has no entries in the tier, and a slot that it gets later begins suspended.
    pub(super) fn table(&mut self, tier: &Tier, relation: u32, whole: Whole) {
        let cache = CacheId::of(Oid::from_u32(relation));
        let slot = match whole.rows {
            true => self.slot_or_lock(tier, cache),
            false => slots::find(tier, cache),
        };
        if let Some(number) = slot {
            self.slot(tier, number, whole.definition);
        }
        self.void_leases(tier, cache);
    }

    fn slot(&mut self, tier: &Tier, number: u32, suspends: bool) {
        let slot = tier.slot(number);
        if slot.memory_id.load(SeqCst) != 0 {
            return; // its entries do not come from a table
        }
        memory::push(&mut self.list, Mark::Cache(number));
        slot.pending_writers.fetch_add(1, SeqCst);
        if suspends && !fault::on(Fault::NotSuspended) {
            slot.suspended.store(1, SeqCst);
        }
        if !fault::on(Fault::CacheKeepsVersion) {
            tier.renew_version(number);
        }
        if fault::on(Fault::CacheNotPending)
            && let Some(mark) = self.list.pop()
        {
            mark.undo(tier, None);
        }
    }

    /// Marks keys of a table cache. The flag of each key is true if the change voids its lease.
    pub fn keys<'k>(
        &mut self,
        tier: &Tier,
        relation: u32,
        keys: impl Iterator<Item = (&'k [u8], bool)> + Clone,
    ) {
        let cache = CacheId::of(Oid::from_u32(relation));
        let slot = find(tier, cache);
        let mut all_raised = true;
        for (bytes, voids_lease) in keys.clone() {
            let key = hot_key(tier, cache, slot.unwrap_or(NO_SLOT), bytes);
            all_raised &= self.key(tier, cache, &key, voids_lease);
        }
        // A reader that gave the cache a slot before the marks were set may have made copies of old rows.
        if let (None, Some(slot)) = (slot, find_again(tier, cache)) {
            if !all_raised {
                self.stand_for_keys(tier, cache, slot);
            }
            for (bytes, _) in keys {
                let key = hot_key(tier, cache, slot, bytes);
                tier.change(tier.region().partition_of(key.hash), |partition| {
                    partition.remove(&key, RemovalCause::Invalidated);
                });
            }
        }
    }

    /// Marks a key. Returns false if the mark found no room; `pending_writers` of the whole cache then keeps readers
    /// off.
    fn key(&mut self, tier: &Tier, cache: CacheId, key: &HotKey, voids_lease: bool) -> bool {
        let (hash, slot) = (key.hash, key.cache);
        let role = session::own_role();
        let number = tier.region().partition_of(hash);
        let place = self.list.len();
        let mark = |raised| Mark::Key {
            hash,
            slot,
            voids_lease,
            raised,
        };
        memory::push(&mut self.list, mark(None));
        let marked = match fault::on(Fault::MarkKeepsEntry) {
            true => HotKey { bytes: b"", ..*key },
            false => *key,
        };
        let void = || voids_lease && leases::void(tier, hash);
        let offers = &mut self.offers;
        let raised = tier.change(number, |partition| {
            let raised = tier.marks().of(number).raise(hash, role);
            raised.then(|| {
                offers.mark(tier, partition, &marked);
                void()
            })
        });
        let voided = match raised {
            Some(voided) => {
                self.list[place] = mark(Some(role));
                voided
            }
            None => {
                self.stand_for_keys(tier, cache, slot);
                tier.change(number, |partition| {
                    partition.mark(&marked);
                    void()
                })
            }
        };
        if voided {
            leases::wake_waiting(tier, hash);
        }
        if raised.is_some()
            && fault::on(Fault::KeyNotPending)
            && let Some(mark) = self.list.pop()
        {
            mark.undo(tier, None);
        }
        raised.is_some()
    }

    /// Keeps readers off the cache because the mark of one of its keys found no room. Runs before the entry of the key
    /// is removed. The cache's other copies stay.
    fn stand_for_keys(&mut self, tier: &Tier, cache: CacheId, slot: u32) {
        if fault::on(Fault::NoPlaceNotPending) {
            return;
        }
        if slot == NO_SLOT {
            return self.lock(cache);
        }
        if !self.full.contains(&slot) {
            memory::push(&mut self.full, slot);
            self.pend(tier, slot);
            // This mark must be undone after the marks of the cache's keys, because a set that marks one of the keys at
            // the same time must publish nothing.
            self.list.rotate_right(1);
        }
    }

    /// Removes entries of a memory cache, and keeps other sessions from storing new ones until the transaction has
    /// ended.
    pub fn fence<'k>(
        &mut self,
        tier: &Tier,
        slot: u32,
        cache: CacheId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        for bytes in keys {
            let key = hot_key(tier, cache, slot, bytes);
            self.key(tier, cache, &key, true);
        }
    }

    /// Removes all entries of a memory cache, and keeps other sessions from storing new ones until the transaction has
    /// ended.
    pub fn fence_all(&mut self, tier: &Tier, slot: u32, cache: CacheId) {
        self.pend(tier, slot);
        self.void_leases(tier, cache);
        tier.renew_version(slot);
        let version = tier.slot(slot).version.load(SeqCst);
        walk::remove_entries(tier, slot, RemovalCause::Invalidated, |entry| {
            entry.header().version < version
        });
    }

    /// Returns the slot of a cache that was written. If the cache has none, locks the cache and looks up the slot
    /// again, because a reader may have assigned one before the lock was taken.
    fn slot_or_lock(&mut self, tier: &Tier, cache: CacheId) -> Option<u32> {
        find(tier, cache).or_else(|| {
            self.lock(cache);
            find_again(tier, cache)
        })
    }

    /// Locks a cache without a slot. A slot that the cache gets under the lock begins unverified, and stays so until
    /// this transaction has ended.
    fn lock(&mut self, cache: CacheId) {
        let relation = cache.relation();
        if fault::on(Fault::NoSlotNotLocked) {
            return;
        }
        if !self.locked.contains(&relation.to_u32()) {
            lock::mark_without_slot(relation);
            memory::push(&mut self.locked, relation.to_u32());
        }
    }

    /// Keeps readers off caches whose keys were marked without a slot and find no room in the record of a prepared
    /// transaction. A reader may have given the cache a slot that the marks of its keys do not name.
    fn cover_without_slot(&mut self, tier: &Tier, caches: impl Iterator<Item = CacheId>) {
        for cache in caches {
            if let Some(slot) = self.slot_or_lock(tier, cache) {
                self.stand_for_keys(tier, cache, slot);
            }
        }
    }

    /// Moves all marks to the record of a transaction that is being prepared. `caches` are the caches that the
    /// transaction has changed.
    pub fn hand_over(
        &mut self,
        tier: &Tier,
        record: Record,
        caches: impl Iterator<Item = CacheId> + Clone,
    ) -> Result<(), Error> {
        self.offers.withdraw_all();
        if !prepare::hand_over(tier, record, &mut self.list)? {
            // The rest of the list begins with a key without a slot, for which the record has no room.
            self.cover_without_slot(tier, caches);
            prepare::hand_over_covered(tier, record, &mut self.list)?;
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Puts marks in front of the existing marks, so that they are undone last.
    pub fn put_first(&mut self, mut marks: Vec<Mark>) {
        if !marks.is_empty() {
            for mark in std::mem::take(&mut self.list) {
                memory::push(&mut marks, mark);
            }
            self.list = marks;
        }
    }

    /// Adds a mark that is already set, or an item that represents other work at the end of the transaction.
    pub fn add(&mut self, mark: Mark) {
        memory::push(&mut self.list, mark);
    }

    /// Undoes all marks in reverse order, and publishes the offers if the transaction has committed.
    pub fn undo(self, tier: &Tier, committed: bool) {
        for mark in self.list.iter().rev() {
            let offer = match *mark {
                Mark::Key { hash, .. } if committed => self.offers.find(hash),
                _ => None,
            };
            match offer {
                Some(offer) => publish(tier, mark, offer),
                None => mark.undo(tier, Some(committed)),
            }
        }
    }
}

/// Looks up the slot of a cache before the cache is marked.
fn find(tier: &Tier, cache: CacheId) -> Option<u32> {
    let slot = slots::find(tier, cache);
    if slot.is_none() {
        pause::at(Window::NoSlotToMark);
    }
    slot
}

/// Looks up the slot of a cache again, after its mark is set or its lock is taken.
fn find_again(tier: &Tier, cache: CacheId) -> Option<u32> {
    slots::find(tier, cache).filter(|_| !fault::on(Fault::SlotNotCheckedAgain))
}

/// Publishes an offer and lowers its mark under one hold of the partition's lock. If pages must be reclaimed in another
/// partition, releases the lock in between; the mark stays, and all conditions are checked again afterwards.
fn publish(tier: &Tier, mark: &Mark, offer: &Offer) {
    let Mark::Key { hash, .. } = *mark else {
        return;
    };
    let number = tier.region().partition_of(hash);
    let (mut grant, now) = (tier.region().grant(), clock::now());
    for _ in 0..SET_ROUNDS {
        let mut voided = false;
        let published = tier.change(number, |partition| {
            let published = offer.publish(tier, partition, now, &mut grant);
            if matches!(published, Published::Done) {
                voided = mark.undo_key(tier, partition);
            }
            published
        });
        match published {
            Published::Done => {
                if voided {
                    leases::wake_waiting(tier, hash);
                }
                return;
            }
            Published::NeedPages { pages, victim } => {
                tier.change(victim, |partition| {
                    partition.reclaim(pages, now, &mut grant)
                });
            }
        }
    }
    mark.undo(tier, Some(true)); // other writers took the space each time
}
