//! The ledger of a transaction: the keys and tables that it has changed, the changes that are marked, and the changes
//! that no savepoint can roll back any more.

use std::collections::{HashMap, HashSet};

use pgrx::pg_sys::Oid;

use super::deletions::Deletions;
use super::marks::{Extent, Marks, Whole};
use super::offers::Offers;
use crate::cache::commit::invalidated_keys::{MAX_KEYS, Note, Notes, Open};
use crate::cache::model::savepoints::{Join, Savepoints};
use crate::pg::catalog::relation;
use crate::pg::events;
use crate::pg::memory;
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::pending_invalidations::Announced;
use crate::pg::shmem::prepared::Record;
use crate::pg::shmem::tier::{Tier, tier};

/// Changes of the current transaction.
#[derive(Default)]
pub(super) struct Transaction {
    /// The caches whose rows were changed or whose entries were removed. The list is short, and exists with and without
    /// a tier.
    pub(super) touched: Vec<u32>,
    /// Whether relations were created, altered or truncated, so that an abort may remove files.
    pub(super) new_files: bool,
    /// The changed keys that are not marked yet, by relation.
    pub(super) keys: HashMap<u32, Notes>,
    pub(super) tables: HashMap<u32, Whole>,
    /// The keys and tables that are marked already. A mark stays until the transaction has ended.
    pub(super) marked: Marked,
    /// Changes that savepoints may roll back, kept for tracking clients.
    pub(super) open: Open,
    /// Relations that were changed after the marks were set.
    pub(super) late: Vec<u32>,
    /// The announcement that this transaction is about to notify clients. A session that reads its changes waits until
    /// the announcement is withdrawn.
    pub(super) announced: Option<Announced>,
    /// Caches that lose rows with unknown keys, so that all of their leases become void.
    pub(super) removals: Vec<CacheId>,
    /// Caches that lose entries because the source of the entries changes.
    pub(super) outdated: HashSet<CacheId>,
    /// Deletions that may need a second check.
    pub(super) deletions: Deletions,
    pub(super) relations: Savepoints<Relations>,
    pub(super) databases: Vec<Oid>,
    pub(super) marks: Marks,
    /// Values of rows whose keys are not marked yet.
    pub(super) offers: Offers,
    /// The record that holds the marks of a transaction that is being prepared.
    pub(super) record: Option<Record>,
}

/// The keys and tables whose marks are set.
#[derive(Default)]
pub(super) struct Marked {
    pub(super) keys: HashMap<u32, Notes>,
    pub(super) tables: HashMap<u32, Whole>,
}

impl Marked {
    /// Joins a note with the note of a marked key. Returns false if the key needs another mark, because its mark is
    /// missing or does not void the lease.
    fn take(&mut self, relation: u32, key: &[u8], note: Note) -> bool {
        let known = self.keys.get_mut(&relation);
        let Some(known) = known.and_then(|keys| keys.get_mut(key)) else {
            return false;
        };
        let is_enough = known.voids_lease || !note.voids_lease;
        if is_enough {
            known.join(note);
        }
        is_enough
    }
}

/// Relations that were created or dropped, with one part per savepoint. A rollback to a savepoint discards its part.
/// Notes of rows survive the rollback, because marking too much costs a miss, and marking too little returns outdated
/// values.
#[derive(Default)]
pub(super) struct Relations {
    pub(super) created: Vec<Oid>,
    pub(super) dropped: Vec<Oid>,
}

impl Join for Relations {
    fn join(&mut self, later: Relations) {
        self.created.join(later.created);
        self.dropped.join(later.dropped);
    }
}

impl Transaction {
    /// Notes that the row of a key has changed. `deletes` is true if the transaction is about to find the row and
    /// remove it.
    pub(super) fn note_key(
        &mut self,
        tier: &Tier,
        relation: u32,
        key: &[u8],
        voids_lease: bool,
        deletes: bool,
    ) {
        self.withdraw(relation, key);
        match deletes {
            true => self.deletions.delete(relation, key),
            false => self.deletions.write(relation, key),
        }
        let tables = [&mut self.tables, &mut self.marked.tables];
        let whole = tables.into_iter().find_map(|tables| {
            let whole = tables.get_mut(&relation);
            whole.filter(|whole| whole.rows || fault::on(Fault::DefinitionCoversRows))
        });
        if let Some(whole) = whole {
            whole.stands = whole.stands || self.open.stands(tier, relation, None);
            return;
        }
        let stands = self.open.stands(tier, relation, Some(key));
        let note = Note::new(voids_lease, stands);
        if self.marked.take(relation, key, note) {
            return;
        }
        // The tier contains nothing of a temporary table, so it needs no mark.
        if !self.keys.contains_key(&relation) && relation::is_temporary(Oid::from_u32(relation)) {
            return;
        }
        let keys = self.keys.entry(relation).or_default();
        match keys.get_mut(key) {
            Some(known) => known.join(note),
            None => {
                if keys.try_reserve(1).is_err() {
                    memory::exhausted(keys.len() * 2 * size_of::<Box<[u8]>>());
                }
                keys.insert(memory::copy(key).into_boxed_slice(), note);
            }
        }
        if keys.len() > MAX_KEYS {
            self.note_extent(relation, Extent::Rows, true);
        }
    }

    /// Withdraws the offer of a key, because its row has changed again.
    pub(super) fn withdraw(&mut self, relation: u32, key: &[u8]) {
        if fault::on(Fault::NoteKeepsOffer) {
            return;
        }
        self.offers.withdraw(relation, key);
        self.marks.offers.withdraw(relation, key);
    }

    /// Makes a change final that was noted under a savepoint, because no savepoint can roll the change back any more.
    pub(super) fn stand(&mut self, relation: u32, key: Option<&[u8]>) {
        let lists = [&mut self.keys, &mut self.marked.keys];
        for notes in lists.into_iter().filter_map(|list| list.get_mut(&relation)) {
            if let Some(note) = key.and_then(|key| notes.get_mut(key)) {
                note.stands = true;
            }
        }
        // The change may have been counted as a change of the whole cache; then that change becomes final.
        let lists = [&mut self.tables, &mut self.marked.tables];
        for whole in lists.into_iter().filter_map(|list| list.get_mut(&relation)) {
            whole.stands = true;
        }
    }

    /// Notes that rows of a cache have changed or that its entries are removed.
    pub(super) fn touch(&mut self, relation: Oid) {
        let relation = relation.to_u32();
        let is_known = self.touched.last() == Some(&relation) || self.touched.contains(&relation);
        if !is_known {
            memory::push(&mut self.touched, relation);
        }
    }

    pub(super) fn note_change(&mut self, relation: Oid, extent: Extent) {
        if extent == Extent::Rows {
            self.touch(relation);
        }
        if extent == Extent::Rows && relation::is_temporary(relation) {
            return;
        }
        let Some(tier) = tier() else {
            return;
        };
        if events::is_late() {
            memory::push(&mut self.late, relation.to_u32());
            let whole = Whole::of(extent, true);
            return self.marks.table(tier, relation.to_u32(), whole);
        }
        let stands = self.open.stands(tier, relation.to_u32(), None);
        self.note_extent(relation.to_u32(), extent, stands);
    }

    fn note_extent(&mut self, relation: u32, extent: Extent, stands: bool) {
        let keys = match extent {
            Extent::Rows => self.keys.remove(&relation).unwrap_or_default(),
            Extent::Definition => Notes::default(),
        };
        let stands = stands || keys.values().any(|note| note.stands);
        let whole = Whole::of(extent, stands);
        let known = self.tables.entry(relation).or_insert(whole);
        known.join(whole);
    }

    pub(super) fn relations_here(&mut self) -> &mut Relations {
        self.relations.at(events::nesting_level())
    }
}
