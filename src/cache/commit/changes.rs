//! What a transaction has changed, and how the hot tier learns of it: mark before the commit,
//! unmark after it. ARCHITECTURE.md, "Coherence", says why this is enough.
//!
//! - **Record**: every changed row's key goes to `keys`, every table that changed as a whole to
//!   `tables`, before the statement ends.
//! - **Mark** (before commit): the entries go, `pending_writers` and `epoch` of their stripes rise;
//!   of a whole cache `pending_writers` rises and the version changes. From here on nobody fills an
//!   old row in.
//! - **Unmark** (after commit or abort): `epoch` rises again, `pending_writers` falls; of a cache the
//!   version changes before `pending_writers` falls.
//!
//! Nothing here can fail between mark and unmark: it takes locks of the tier, one at a time.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::marks::{Extent, Marks};
use crate::cache::lease::load_token;
use crate::cache::model::key;
use crate::cache::model::key_set::Keys;
use crate::cache::model::pending;
use crate::cache::model::savepoints::{Join, Savepoints};
use crate::cache::tier::slots;
use crate::error::Error;
use crate::pg::catalog::relation;
use crate::pg::events::{self, Phase};
use crate::pg::memory;
use crate::pg::session::transaction;
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::tier::{Tier, tier};

/// Keys of one cache that a transaction remembers one by one; past that, the whole cache is marked.
const MAX_KEYS: usize = 10_000;

/// What the present transaction has done.
#[derive(Default)]
struct Transaction {
    /// Some table cache was written, or may have been.
    wrote: bool,
    /// Relations were made, altered or truncated: there may be files that an abort removes.
    new_files: bool,
    /// By relation; for each key whether its lease is voided, which expiry does not do.
    keys: HashMap<u32, HashMap<Box<[u8]>, bool>>,
    tables: HashMap<u32, Extent>,
    /// What is marked already; a mark stands until the transaction has ended.
    marked: Marked,
    /// Caches all of whose leases are voided.
    removals: Vec<CacheId>,
    /// Caches from which somebody removes entries because their source changes.
    outdated: HashSet<CacheId>,
    relations: Savepoints<Relations>,
    databases: Vec<Oid>,
    marks: Marks,
}

#[derive(Default)]
struct Marked {
    keys: HashMap<u32, HashMap<Box<[u8]>, bool>>,
    tables: HashSet<u32>,
}

impl Marked {
    fn has(&self, relation: u32, key: &[u8], voids_lease: bool) -> bool {
        let known = || self.keys.get(&relation)?.get(key);
        self.tables.contains(&relation) || known().is_some_and(|&voided| voided || !voids_lease)
    }
}

/// Relations that were made or dropped, by savepoint. What is noted of rows is not taken back by a
/// rollback to a savepoint: marking too much costs a miss, too little the truth.
#[derive(Default)]
struct Relations {
    created: Vec<Oid>,
    dropped: Vec<Oid>,
}

impl Join for Relations {
    fn join(&mut self, later: Relations) {
        self.created.join(later.created);
        self.dropped.join(later.dropped);
    }
}

thread_local! {
    static TRANSACTION: TransactionLocal<Transaction> = TransactionLocal::default();
}

fn with<R>(change: impl FnOnce(&mut Transaction) -> R) -> R {
    TRANSACTION.with(|transaction| transaction.change(change))
}

/// Notes that the row of a key has changed, or was to be removed and is not there, or becomes
/// outdated by our commit.
pub fn note_key(relation: Oid, key: &[u8]) {
    note_row(relation, key, true);
}

/// Notes it of a row, and whether that voids a lease on the key: an expiry does not.
pub fn note_row(relation: Oid, key: &[u8], voids_lease: bool) {
    with(|transaction| {
        transaction.wrote = true;
        if key.len() > key::MAX_BYTES {
            return; // plain SQL may make one: no copy, no lease and no call is for it
        }
        let Some(tier) = tier() else {
            return;
        };
        if events::phase() == Phase::Committing {
            if relation::is_temporary(relation) {
                return;
            }
            return transaction.marks.keys(
                tier,
                relation.to_u32(),
                [(key, voids_lease)].into_iter(),
            );
        }
        transaction.note_key(relation.to_u32(), key, voids_lease);
    });
    refuse_if_preparing();
}

/// Notes that the rows of many keys have changed, as [`note_key`] does of one.
pub fn note_keys(relation: Oid, keys: &Keys) {
    if keys.len() > MAX_KEYS {
        with(|transaction| transaction.note_change(relation, Extent::Rows));
        return refuse_if_preparing();
    }
    for key in keys.iter() {
        note_key(relation, key);
    }
}

/// Notes that many rows of a cache are removed, and which is not known one by one: its leases are
/// void.
pub fn note_removal(relation: Oid) {
    let cache = CacheId::of(relation);
    note_outdated(relation);
    with(|transaction| match tier() {
        Some(tier) if events::phase() == Phase::Committing => {
            transaction.marks.removal(tier, cache);
        }
        _ => transaction.removals.push(cache),
    });
}

/// Removes entries of a memory cache and keeps them from being stored until the transaction has
/// ended.
pub fn fence<'k>(tier: &Tier, slot: u32, cache: CacheId, keys: impl Iterator<Item = &'k [u8]>) {
    with(|transaction| transaction.marks.fence(tier, slot, cache, keys));
}

/// Removes all entries of a memory cache, and keeps any from being stored until the transaction has
/// ended.
pub fn fence_all(tier: &Tier, slot: u32, cache: CacheId) {
    with(|transaction| transaction.marks.fence_all(tier, slot, cache));
}

/// Entries of this cache are removed because what they were made of changes with our commit.
pub fn note_outdated(relation: Oid) {
    with(|transaction| transaction.outdated.insert(CacheId::of(relation)));
}

/// Marks what is noted so far, while the commit still has to remove rows: who removes a row looks
/// for it after its mark stands, and who stores one looks for the mark after it is written.
pub fn mark_early() {
    with(Transaction::mark);
}

/// Notes that a table has changed as a whole.
pub fn note_table(relation: Oid, extent: Extent) {
    if extent == Extent::Rows {
        note_outdated(relation);
    }
    with(|transaction| {
        transaction.new_files = true;
        transaction.note_change(relation, extent);
    });
    refuse_if_preparing();
}

/// PREPARE TRANSACTION was let pass because nothing had changed, and now another extension's
/// callback changes something: nobody would mark it when the transaction is committed.
fn refuse_if_preparing() {
    if events::phase() == Phase::Preparing {
        refuse_to_prepare();
    }
}

/// Raises 0A000 where the transaction has changed a cache: nobody would mark that when it is
/// committed.
pub fn refuse_to_prepare() {
    if pending::has_noted() || TRANSACTION.with(|t| t.look(Transaction::touched_a_cache)) {
        ErrorReport::from(Error::PreparedWrite).report(PgLogLevel::ERROR);
    }
}

/// Notes that a relation was made.
pub fn note_created(relation: Oid) {
    with(|t| {
        t.new_files = true;
        memory::push(&mut t.relations_here().created, relation);
    });
}

/// Notes that a relation was dropped.
pub fn note_dropped(relation: Oid) {
    with(|t| memory::push(&mut t.relations_here().dropped, relation));
    note_table(relation, Extent::Definition);
}

/// Notes that a database was dropped.
pub fn note_database_dropped(database: Oid) {
    with(|t| t.databases.push(database));
}

/// Marks all that is noted.
pub fn mark() {
    with(Transaction::mark);
}

/// Unmarks, after the commit is visible or the transaction is rolled back.
pub fn unmark(committed: bool) {
    let new_files = with(|t| {
        let new_files = t.new_files;
        t.end(committed);
        new_files
    });
    if !committed {
        flush_abort_of(new_files);
    }
}

/// A savepoint was released.
pub fn release_savepoint(level: i32) {
    with(|t| t.relations.release(level));
}

/// A savepoint was rolled back.
pub fn roll_back_savepoint(level: i32) {
    let rolled_back = with(|t| t.relations.roll_back(level));
    free_slots(rolled_back.created);
    flush_abort_of(with(|t| t.new_files));
}

/// Here the abort is recorded, and the files are still there.
fn flush_abort_of(new_files: bool) {
    if new_files {
        transaction::flush_abort();
    }
}

impl Transaction {
    fn note_key(&mut self, relation: u32, key: &[u8], voids_lease: bool) {
        if self.tables.contains_key(&relation) || self.marked.has(relation, key, voids_lease) {
            return;
        }
        // Of a temporary table there is nothing in the tier, and nothing of the tier is for its
        // marks.
        if !self.keys.contains_key(&relation) && relation::is_temporary(Oid::from_u32(relation)) {
            return;
        }
        let keys = self.keys.entry(relation).or_default();
        match keys.get_mut(key) {
            Some(known) => *known |= voids_lease,
            None => {
                if keys.try_reserve(1).is_err() {
                    memory::exhausted(keys.len() * 2 * size_of::<Box<[u8]>>());
                }
                keys.insert(memory::copy(key).into_boxed_slice(), voids_lease);
            }
        }
        if keys.len() > MAX_KEYS {
            self.note_extent(relation, Extent::Rows);
        }
    }

    /// Whether the transaction changed something that the tier knows of, or a cache's rows.
    /// Definitions of other relations may change in a transaction that is prepared.
    fn touched_a_cache(&self) -> bool {
        let has_slot = |&relation: &u32| {
            tier().is_some_and(|tier| {
                slots::find(tier, CacheId::of(Oid::from_u32(relation))).is_some()
            })
        };
        self.wrote || self.tables.keys().any(has_slot)
    }

    fn note_change(&mut self, relation: Oid, extent: Extent) {
        self.wrote |= extent == Extent::Rows;
        if extent == Extent::Rows && relation::is_temporary(relation) {
            return;
        }
        let Some(tier) = tier() else {
            return;
        };
        match events::phase() == Phase::Committing {
            true => self.marks.table(tier, relation.to_u32(), extent),
            false => self.note_extent(relation.to_u32(), extent),
        }
    }

    fn note_extent(&mut self, relation: u32, extent: Extent) {
        self.keys.remove(&relation);
        let known = self.tables.entry(relation).or_insert(extent);
        if extent == Extent::Definition {
            *known = extent;
        }
    }

    fn mark(&mut self) {
        let Some(tier) = tier() else {
            return;
        };
        for cache in std::mem::take(&mut self.removals) {
            self.marks.removal(tier, cache);
        }
        for (relation, extent) in std::mem::take(&mut self.tables) {
            self.marks.table(tier, relation, extent);
            self.marked.tables.insert(relation);
        }
        for (relation, keys) in std::mem::take(&mut self.keys) {
            let noted = keys
                .iter()
                .map(|(key, &voids_lease)| (key.as_ref(), voids_lease));
            self.marks.keys(tier, relation, noted);
            match self.marked.keys.entry(relation) {
                Entry::Vacant(place) => drop(place.insert(keys)),
                Entry::Occupied(mut marked) => marked.get_mut().extend(keys),
            }
        }
    }

    fn end(&mut self, committed: bool) {
        let ended = std::mem::take(self);
        let Some(tier) = tier() else {
            return;
        };
        if committed {
            for cache in ended.outdated {
                load_token::note_removal(tier, cache);
            }
        }
        ended.marks.undo(tier);
        let relations = ended.relations.into_one();
        free_slots(match committed {
            true => relations.dropped,
            false => relations.created,
        });
        if committed {
            for database in ended.databases {
                slots::free_database(tier, database);
            }
        }
    }

    fn relations_here(&mut self) -> &mut Relations {
        self.relations.at(events::nesting_level())
    }
}

/// The relations are gone, or were never there for others.
fn free_slots(relations: Vec<Oid>) {
    let Some(tier) = tier() else {
        return;
    };
    for relation in relations {
        slots::free(tier, CacheId::of(relation));
    }
}
