//! Applies a transaction's ledger to the hot tier: sets the marks before the commit, undoes them at the end, and
//! invalidates the changed keys at clients that track them.

use std::collections::hash_map::Entry;
use std::thread::sleep;
use std::time::Duration;

use pgrx::pg_sys::Oid;

use super::ledger::Transaction;
use super::marks::Whole;
use crate::cache::commit::invalidated_keys::{self, Notes};
use crate::cache::lease::undo_marks::{self, Mark};
use crate::cache::lease::{held, load_token};
use crate::cache::tier::slots;
use crate::guc;
use crate::pg::catalog::relation;
use crate::pg::memory;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::transaction;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::tier::{Tier, tier};

impl Transaction {
    pub(super) fn mark(&mut self) {
        let Some(tier) = tier() else {
            return;
        };
        if fault::on(Fault::DisabledMarksNothing) && !guc::enabled() {
            return;
        }
        for cache in std::mem::take(&mut self.removals) {
            self.marks.removal(tier, cache);
        }
        for (relation, whole) in std::mem::take(&mut self.tables) {
            self.marks.table(tier, relation, whole);
            let known = self.marked.tables.entry(relation).or_insert(whole);
            known.join(whole);
        }
        let offers = std::mem::take(&mut self.offers);
        self.marks.offers.join(offers);
        for (relation, keys) in std::mem::take(&mut self.keys) {
            let noted = keys.iter().map(|(key, note)| (&key[..], note.voids_lease));
            self.marks.keys(tier, relation, noted);
            match self.marked.keys.entry(relation) {
                Entry::Vacant(place) => drop(place.insert(keys)),
                Entry::Occupied(mut marked) => join(marked.get_mut(), keys),
            }
        }
    }

    /// Announces the transaction if it has changed keys and a client tracks keys. A session that reads its changes
    /// then waits until clients are notified.
    pub(super) fn announce(&mut self) {
        let changed = !self.marked.keys.is_empty() || !self.marked.tables.is_empty();
        if let Some(tier) = tier().filter(|tier| changed && tier.is_tracked())
            && transaction::has_xid()
        {
            let xid = transaction::full_xid();
            self.announced = tier.control().pending_invalidations.begin(xid);
        }
    }

    pub(super) fn end(&mut self, committed: bool) {
        if !committed && fault::on(Fault::RollbackInvalidates) {
            self.mark();
        }
        let mut ended = std::mem::take(self);
        let Some(tier) = tier() else {
            return;
        };
        let is_tracked = match fault::on(Fault::TrackersCheckedTooEarly) {
            true => ended.announced.is_some(),
            false => tier.is_tracked(),
        };
        let invalidates = is_tracked
            && (committed || fault::on(Fault::RollbackInvalidates))
            && !fault::on(Fault::InvalidatedBeforeVisible);
        if invalidates && !fault::on(Fault::InvalidatedAfterUnmark) {
            ended.invalidate(tier);
        }
        if let Some(announced) = ended.announced {
            tier.control().pending_invalidations.end(announced);
        }
        if committed {
            for &cache in &ended.outdated {
                load_token::note_removal(tier, cache);
            }
        }
        if let Some(record) = ended.record {
            undo_marks::lower(tier, record, || Some(committed));
        }
        if committed || !fault::on(Fault::AbortKeepsMarks) {
            std::mem::take(&mut ended.marks).undo(tier, committed);
        }
        if invalidates && fault::on(Fault::InvalidatedAfterUnmark) {
            sleep(Duration::from_millis(100)); // leave time for a reader between unmark and notification
            ended.invalidate(tier);
        }
        let relations = ended.relations.into_one();
        free_slots(match committed {
            true if fault::on(Fault::DroppedSlotKept) => Vec::new(),
            false if fault::on(Fault::CreatedSlotKept) => Vec::new(),
            true => relations.dropped,
            false => relations.created,
        });
        if committed {
            for database in ended.databases {
                if fault::on(Fault::DatabaseSlotsKept) {
                    break;
                }
                slots::free_database(tier, database);
            }
        }
    }

    /// Returns the marked keys of each cache, sorted by cache. None instead of keys means that the whole cache is
    /// marked.
    pub(super) fn marked_names(&self) -> Vec<(u32, Option<Vec<Vec<u8>>>)> {
        let whole = self.marked.tables.keys().map(|&relation| (relation, None));
        let mut all = memory::collect(whole);
        for (&relation, notes) in &self.marked.keys {
            let keys = notes.keys().map(|key| key.to_vec());
            memory::push(&mut all, (relation, Some(memory::collect(keys))));
        }
        all.sort_unstable();
        all
    }

    /// Invalidates the changed keys at tracking clients. Runs while the commit is visible and the marks are still set.
    pub(super) fn invalidate(&self, tier: &Tier) {
        let standing = |(relation, whole): (&u32, &Whole)| whole.stands.then_some(*relation);
        let whole = self.marked.tables.iter().filter_map(standing);
        for relation in whole.chain(self.late.iter().copied()) {
            invalidated_keys::record_cache(tier, relation);
        }
        for (&relation, notes) in &self.marked.keys {
            invalidated_keys::record_keys(tier, relation, notes);
        }
    }

    /// Returns the caches whose rows the transaction has changed, and the caches with a slot whose definition it has
    /// changed. The flag of a cache is true if the cache changed as a whole. Skips relations that are not caches. Skips
    /// temporary caches, because Postgres prepares no transaction that has used a temporary table.
    pub(super) fn touched_caches(&self) -> Vec<(u32, bool)> {
        let has_slot = |&&relation: &&u32| {
            tier().is_some_and(|tier| {
                slots::find(tier, CacheId::of(Oid::from_u32(relation))).is_some()
            })
        };
        let whole = |relation: &u32| {
            self.tables.contains_key(relation) || self.marked.tables.contains_key(relation)
        };
        let defined = self.tables.keys().filter(has_slot);
        let touched = self.touched.iter().chain(defined);
        let mut touched = memory::collect(touched.map(|relation| (*relation, whole(relation))));
        touched.retain(|&(relation, _)| !relation::is_temporary(Oid::from_u32(relation)));
        touched.sort_unstable(); // so that two transactions lock in the same order
        touched.dedup();
        touched
    }

    /// Adds the remaining work of the transaction's end to the marks. A prepared transaction does this work from its
    /// record in shared memory. A record is undone backwards, so slots and stores go to the front of the list, and
    /// notifications of clients to its end.
    pub(super) fn note_for_later(&mut self, tier: &Tier, touched: &[(u32, bool)]) {
        let relations = std::mem::take(&mut self.relations).into_one();
        let mut later = Vec::new();
        let lists = [
            (
                relations.dropped,
                Mark::DroppedByCommit as fn(CacheId) -> Mark,
            ),
            (relations.created, Mark::DroppedByAbort),
        ];
        for (list, mark) in lists {
            for relation in list {
                let cache = CacheId::of(relation);
                if slots::find(tier, cache).is_some() && !fault::on(Fault::PreparedDropKeepsSlot) {
                    memory::push(&mut later, mark(cache));
                }
            }
        }
        for cache in held::take_stores() {
            if fault::on(Fault::PreparedStoresNotCounted) {
                tier.stores(cache).end();
                continue;
            }
            memory::push(&mut later, Mark::Stores(cache));
        }
        self.marks.put_first(later);
        for cache in std::mem::take(&mut self.outdated) {
            self.marks.add(Mark::Outdated(cache));
        }
        // Clients are notified before any mark is undone, even clients that begin to track only after this point.
        if self.record.is_some() || !self.marks.is_empty() {
            for &(relation, _) in touched {
                let cache = CacheId::of(Oid::from_u32(relation));
                self.marks.add(Mark::Invalidated(cache));
            }
        }
    }
}

fn join(notes: &mut Notes, later: Notes) {
    for (key, note) in later {
        match notes.entry(key) {
            Entry::Vacant(place) => drop(place.insert(note)),
            Entry::Occupied(mut known) => known.get_mut().join(note),
        }
    }
}

/// Frees the slots of dropped relations, and of relations whose creation was rolled back.
pub(super) fn free_slots(relations: Vec<Oid>) {
    let Some(tier) = tier() else {
        return;
    };
    for relation in relations {
        slots::free(tier, CacheId::of(relation));
    }
}
