//! Reads, stores and removes single entries of a memory cache, through a handle on the tier and the cache's slot.
//!
//! An entry changes only under the lock of its partition, in one step with the lease of its key, while the slot still
//! belongs to the cache and no mark is set. A session that has changed the source of an entry no longer finds the
//! entry. Other sessions find it until the commit.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pgcache_store::{EntryRef, Key as HotKey, NewEntry, PartitionMut, PartitionRef, RemovalCause};
use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::Cache;
use crate::cache::catalog::sources;
use crate::cache::lease::{leases, undo_marks, unverified_after_restart};
use crate::cache::model::entry::Entry;
use crate::cache::model::pending;
use crate::cache::open::{self, removal};
use crate::cache::tier::hashed_key::hot_key;
use crate::cache::tier::io::{self, StoreOutcome};
use crate::cache::tier::walk;
use crate::error::Error;
use crate::guc;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::tier::{Tier, tier};
use crate::pg::value::datum::Text;

/// The tier and the slot of a memory cache in it.
#[derive(Clone, Copy)]
pub struct TierHandle {
    pub tier: &'static Tier,
    pub slot: u32,
    relation: Oid,
}

impl TierHandle {
    /// Returns the handle of a memory cache, and assigns a slot if the cache has none. Raises 55000 without a tier and
    /// while `pgcache.enabled` is off, and 53400 if all slots are taken.
    pub fn of(cache: &Cache) -> Result<TierHandle, Error> {
        let tier = tier().ok_or(Error::NoTier)?;
        match guc::enabled() {
            true => TierHandle::in_tier(cache, tier),
            false => Err(Error::Disabled),
        }
    }

    /// Returns the handle as [`TierHandle::of`] does, but also if `pgcache.enabled` is off.
    pub fn in_tier(cache: &Cache, tier: &'static Tier) -> Result<TierHandle, Error> {
        removal::settle();
        let slot = match cache.slot(tier) {
            Some(slot) => slot,
            None => TierHandle::assign_slot(cache, tier)?,
        };
        if tier.slot(slot).recovered.load(SeqCst) != 0 {
            open_recovered(cache, tier, slot)?;
        }
        Ok(TierHandle {
            tier,
            slot,
            relation: cache.relation,
        })
    }

    /// Returns the handle of a memory cache. Returns None if the cache has no slot. Waits for nothing and reads no
    /// catalog. The caller has checked that the slot need not be opened (`Cache::is_to_open`).
    pub fn known(cache: &Cache) -> Option<TierHandle> {
        let tier = tier()?;
        Some(TierHandle {
            tier,
            slot: cache.slot(tier)?,
            relation: cache.relation,
        })
    }

    /// Gives the cache a slot under a lock. Without the lock another session could drop the view at the same time, and
    /// no session would free a slot that is assigned after the drop.
    fn assign_slot(cache: &Cache, tier: &Tier) -> Result<u32, Error> {
        let _open = open::lock_to_read(cache.relation, Privileges::NONE)?;
        let slot = cache.slot_or_new(tier).ok_or(Error::NoSlot)?;
        Ok(slot)
    }

    /// Returns the key in the form of the store, for bytes that a walk has found.
    pub fn key<'k>(&self, cache: &Cache, bytes: &'k [u8]) -> HotKey<'k> {
        hot_key(self.tier, cache.id, self.slot, bytes)
    }

    /// Returns the version of the cache's current content.
    pub fn version(&self) -> u64 {
        self.tier.slot(self.slot).version.load(SeqCst)
    }

    /// Returns whether the slot still belongs to the cache.
    #[inline]
    pub fn belongs_to(&self, cache: &Cache) -> bool {
        self.tier.cache_of(self.slot).is(cache.id, SeqCst)
    }

    /// Copies the live entry of a key out of the tier.
    pub fn copy_out(&self, cache: &Cache, key: &HotKey) -> Option<Entry> {
        self.copy_out_within(cache, key, None)
    }

    /// Copies the entry of a key out of the tier if it is live or within this grace.
    pub fn copy_out_within(
        &self,
        cache: &Cache,
        key: &HotKey,
        grace: Option<Interval>,
    ) -> Option<Entry> {
        if pending::hides(self.relation, key.bytes) {
            return None;
        }
        let valid = |header: &pgcache_store::Header| {
            header.version == self.version() && self.belongs_to(cache)
        };
        io::copy_out(self.tier, key, cache.value_type, grace, valid)
    }

    /// Returns a live entry and its key, for bytes that a walk has found.
    pub fn entry(&self, cache: &Cache, bytes: &[u8]) -> Option<(Text, Entry)> {
        let entry = self.copy_out(cache, &self.key(cache, bytes))?;
        Some((Text::new(bytes), entry))
    }

    /// Returns whether a live entry exists, for bytes that a walk has found. Does not count as a use of the entry.
    pub fn is_live(&self, cache: &Cache, bytes: &[u8]) -> bool {
        let key = self.key(cache, bytes);
        let live = |partition: PartitionRef| self.live(&partition, &key).is_some();
        self.tier.read(key.hash, live) && self.belongs_to(cache)
    }

    /// Returns the entry of a key if it is live and belongs to the current content. The caller holds the partition's
    /// lock.
    pub fn live<'p>(&self, partition: &PartitionRef<'p>, key: &HotKey) -> Option<EntryRef<'p>> {
        if pending::hides(self.relation, key.bytes) {
            return None;
        }
        let now = clock::now();
        partition
            .peek(key)
            .filter(|entry| entry.header().version == self.version())
            .filter(|entry| io::is_live(&entry.header(), now))
    }

    /// Returns whether a transaction that is committing or is prepared keeps other sessions from storing this key.
    fn is_fenced(&self, hash: u64) -> bool {
        if fault::on(Fault::FenceNotKept) {
            return false;
        }
        self.tier.slot(self.slot).pending_writers.load(SeqCst) > 0
            || unverified_after_restart::is_suspended(self.tier, self.slot)
            || self.tier.is_marked(hash)
    }

    /// Stores an entry if `still` returns true under the lock, and voids the key's lease. Returns whether the entry
    /// was stored or counts as stored and evicted. Raises 54000 for an entry that is too large for the tier.
    pub fn put(
        &self,
        cache: &Cache,
        key: &HotKey,
        entry: &Entry,
        still: impl Fn(&PartitionRef) -> bool,
    ) -> Result<bool, Error> {
        let record = io::record(self.version(), entry, cache.value_type)?;
        self.put_record(cache, key, &record, clock::now(), still)
    }

    /// Stores an entry in the tier's format, which was built for one version of the cache. Returns false if the cache
    /// has another version, or if `still` returned false; otherwise true, even if the entry only counts as stored and
    /// evicted.
    pub fn put_record(
        &self,
        cache: &Cache,
        key: &HotKey,
        record: &NewEntry,
        now: Timestamp,
        still: impl Fn(&PartitionRef) -> bool,
    ) -> Result<bool, Error> {
        check_size(key.bytes, record.value)?;
        if self.is_fenced(key.hash) {
            // The transaction of the fence may have ended without lowering the fence, so lower it here.
            unverified_after_restart::is_proven(self.tier, self.slot, self.relation);
            undo_marks::lower_decided();
        }
        let (voided, fenced) = (Cell::new(false), Cell::new(false));
        let stored = io::store(
            self.tier,
            key,
            record,
            now,
            |partition| {
                let holds =
                    self.version() == record.version && self.belongs_to(cache) && still(partition);
                fenced.set(holds && self.is_fenced(key.hash));
                holds && !fenced.get()
            },
            || {
                voided.set(leases::void(self.tier, key.hash));
                self.tier.control().changes.note(key.hash);
            },
        );
        if voided.get() {
            leases::wake_waiting(self.tier, key.hash);
        }
        match stored {
            StoreOutcome::Yes => {
                pending::note_stored(self.relation, key.bytes);
                Ok(true)
            }
            // The entry counts as stored and evicted at once, because a transaction is changing its source.
            StoreOutcome::Refused if fenced.get() => Ok(true),
            StoreOutcome::Refused => Ok(false),
            StoreOutcome::TooLarge => {
                self.tier.control().rejected.fetch_add(1, Relaxed);
                Err(Error::EntryTooLarge(record.value.len()))
            }
            // The entry counts as stored and evicted at once. The previous entry must not survive the write.
            StoreOutcome::Crowded => {
                self.remove(key, |_| true);
                Ok(true)
            }
        }
    }

    /// Removes the entry if `still` returns true under the lock, and voids the key's lease. Returns the result of
    /// `still`.
    pub fn remove(&self, key: &HotKey, still: impl Fn(&PartitionRef) -> bool) -> bool {
        self.remove_because(key, RemovalCause::Cleared, still)
    }

    /// Removes the entry for this reason if `still` returns true under the lock. Voids the key's lease unless the
    /// reason is expiry. Returns the result of `still`.
    pub fn remove_because(
        &self,
        key: &HotKey,
        why: RemovalCause,
        still: impl Fn(&PartitionRef) -> bool,
    ) -> bool {
        self.under_lock(key, why != RemovalCause::Expired, |partition| {
            let holds = still(partition);
            if holds {
                partition.remove(key, why);
            }
            holds
        })
    }

    /// Voids the key's lease, and keeps the entry, if `still` returns true under the lock. Returns the result of
    /// `still`.
    pub fn void_lease(&self, key: &HotKey, still: impl Fn(&PartitionRef) -> bool) -> bool {
        self.under_lock(key, true, |partition| still(partition))
    }

    /// Runs `act` under the lock of the key's partition. If `act` returns true and `voids` is true, also voids the
    /// key's lease, and the values that other sessions have loaded for the key. Returns the result of `act`.
    #[inline]
    fn under_lock(
        &self,
        key: &HotKey,
        voids: bool,
        act: impl Fn(&mut PartitionMut) -> bool,
    ) -> bool {
        let partition = self.tier.region().partition_of(key.hash);
        let (done, voided) = self.tier.change(partition, |partition| {
            let done = act(partition);
            (done, done && voids && leases::void(self.tier, key.hash))
        });
        if done && voids {
            self.tier.slot(self.slot).note_removal(clock::now());
        }
        if voided {
            leases::wake_waiting(self.tier, key.hash);
        }
        done
    }
}

/// Opens a slot that has survived a promotion or was restored at the start. Removes the entries of a cache that depends
/// on tables, which also takes them out of the counts: after a promotion they may have been computed from rows that
/// changed later, because replay removes no entries. Entries of a cache without dependencies stay.
#[cold]
fn open_recovered(cache: &Cache, tier: &Tier, slot: u32) -> Result<(), Error> {
    if session::in_recovery() {
        return Ok(());
    }
    let _open = open::lock_to_read(cache.relation, Privileges::NONE)?;
    let depends = sources::has_sources(cache.relation) && !fault::on(Fault::RecoveredEntriesKept);
    if depends {
        leases::void_all(tier, cache.id);
    }
    let outdated = tier.assigning(|| {
        let recovered = &tier.slot(slot).recovered;
        if recovered.load(SeqCst) == 0 || !tier.cache_of(slot).is(cache.id, SeqCst) {
            return false;
        }
        if depends {
            tier.renew_version(slot);
        }
        recovered.store(0, SeqCst);
        depends
    });
    if outdated {
        let version = tier.slot(slot).version.load(SeqCst);
        walk::remove_entries(tier, slot, RemovalCause::Invalidated, |entry| {
            entry.header().version < version
        });
    }
    Ok(())
}

/// Raises 54000 for an entry that is too large for the tier.
pub fn check_size(key: &[u8], value: &[u8]) -> Result<(), Error> {
    check_length(key, value.len())
}

/// Raises 54000 for an entry that is too large for the tier. Called before the value is built.
pub fn check_length(key: &[u8], value: usize) -> Result<(), Error> {
    let tier = tier().ok_or(Error::NoTier)?;
    let limit = tier.region().layout().max_value(key.len());
    if value <= limit.min(guc::hot_max_value()) {
        return Ok(());
    }
    tier.control().rejected.fetch_add(1, Relaxed);
    Err(Error::EntryTooLarge(value))
}
