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
//!
//! - **Prepare**: all is marked as for a commit, and what is to be undone goes to a record in shared
//!   memory (`prepare`), because others decide the transaction.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::marks::{Extent, Marks};
use super::prepare;
use super::told::{self, Note, Notes, Open};
use crate::cache::lease::lowering::{self, Mark};
use crate::cache::lease::{held, load_token};
use crate::cache::model::key;
use crate::cache::model::key_set::Keys;
use crate::cache::model::savepoints::{Join, Savepoints};
use crate::cache::tier::slots;
use crate::pg::catalog::relation;
use crate::pg::events::{self, Phase};
use crate::pg::memory;
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::session::{lock, transaction};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::prepared::Record;
use crate::pg::shmem::telling::Announced;
use crate::pg::shmem::tier::{Tier, tier};

/// Keys of one cache that a transaction remembers one by one; past that, the whole cache is marked.
const MAX_KEYS: usize = 10_000;

/// What the present transaction has done.
#[derive(Default)]
struct Transaction {
    /// Caches of which rows were changed, or entries removed; few, with or without a tier.
    touched: Vec<u32>,
    /// Relations were made, altered or truncated: there may be files that an abort removes.
    new_files: bool,
    /// By relation.
    keys: HashMap<u32, Notes>,
    tables: HashMap<u32, Whole>,
    /// What is marked already; a mark stands until the transaction has ended.
    marked: Marked,
    /// What savepoints may take back, for who is told of changes.
    open: Open,
    /// Relations that were changed after the others were marked.
    late: Vec<u32>,
    /// Who reads what it has written waits until it has told of it.
    announced: Option<Announced>,
    /// Caches all of whose leases are voided.
    removals: Vec<CacheId>,
    /// Caches from which somebody removes entries because their source changes.
    outdated: HashSet<CacheId>,
    relations: Savepoints<Relations>,
    databases: Vec<Oid>,
    marks: Marks,
    /// That of a transaction that is being prepared.
    record: Option<Record>,
}

#[derive(Default)]
struct Marked {
    keys: HashMap<u32, Notes>,
    tables: HashMap<u32, Whole>,
}

/// A table that changes as a whole.
#[derive(Clone, Copy)]
struct Whole {
    extent: Extent,
    /// No savepoint can take it back.
    stands: bool,
}

impl Marked {
    /// Takes a note of a key that is marked, if no other mark is needed for it.
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
        transaction.touch(relation);
        if key.len() > key::MAX_BYTES {
            return; // plain SQL may make one: no copy, no lease and no call is for it
        }
        let Some(tier) = tier() else {
            return;
        };
        if events::is_late() {
            if relation::is_temporary(relation) {
                return;
            }
            memory::push(&mut transaction.late, relation.to_u32());
            return transaction.marks.keys(
                tier,
                relation.to_u32(),
                [(key, voids_lease)].into_iter(),
            );
        }
        transaction.note_key(tier, relation.to_u32(), key, voids_lease);
    });
    hand_over_if_preparing();
}

/// Notes that the rows of many keys have changed, as [`note_key`] does of one.
pub fn note_keys(relation: Oid, keys: &Keys) {
    if keys.len() > MAX_KEYS {
        with(|transaction| transaction.note_change(relation, Extent::Rows));
        return hand_over_if_preparing();
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
        Some(tier) if events::is_late() => {
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
    with(|transaction| {
        transaction.touch(relation);
        transaction.outdated.insert(CacheId::of(relation));
    });
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
    hand_over_if_preparing();
}

/// What another extension's callback changes after ours, while the transaction is being prepared, is
/// marked already: the mark goes to the record at once, too.
fn hand_over_if_preparing() {
    if events::phase() == Phase::Preparing {
        prepare();
    }
}

/// Before PREPARE TRANSACTION: marks all that is noted, and hands it over to a record. Where nothing can
/// be prepared Postgres says so right after this. Raises 53400 where there is no room, and what a lock
/// raises.
pub fn prepare() {
    if transaction::most_prepared() > 0 {
        hand_over();
    }
}

fn hand_over() {
    let touched = TRANSACTION.with(|t| t.look(Transaction::touched_caches));
    for &(relation, as_a_whole) in &touched {
        lock::touch(Oid::from_u32(relation), as_a_whole);
    }
    let Some(tier) = tier() else {
        return;
    };
    let marks = || {
        with(|t| {
            t.mark();
            t.note_for_later(tier, &touched);
            t.record.is_none() && t.marks.is_empty()
        })
    };
    if marks() {
        return; // nothing to undo
    }
    let record = TRANSACTION.with(|t| t.look(|t| t.record));
    let handed = record
        .map_or_else(|| prepare::make_record(tier), Ok)
        .and_then(|record| {
            with(|t| {
                t.record = Some(record);
                t.marks.hand_over(tier, record)
            })
        });
    if let Err(error) = handed {
        ErrorReport::from(error).report(PgLogLevel::ERROR);
    }
    // From here on the marks keep others from a lease.
    held::give_up();
}

/// The transaction is prepared, and this session has nothing of it any more.
pub fn forget() {
    with(|t| drop(std::mem::take(t)));
}

/// Notes that a relation was made.
pub fn note_created(relation: Oid) {
    with(|t| {
        t.new_files = true;
        memory::push(&mut t.relations_here().created, relation);
    });
    hand_over_if_preparing();
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

/// Marks all that is noted, right before the commit.
pub fn mark() {
    with(|t| {
        t.mark();
        t.announce();
    });
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
    with(|t| {
        t.relations.release(level);
        for (relation, key) in t.open.release(level) {
            t.stand(relation, key.as_deref());
        }
    });
}

/// A savepoint was rolled back.
pub fn roll_back_savepoint(level: i32) {
    let rolled_back = with(|t| {
        t.open.roll_back(level);
        t.relations.roll_back(level)
    });
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
    fn note_key(&mut self, tier: &Tier, relation: u32, key: &[u8], voids_lease: bool) {
        let marked = self.marked.tables.get_mut(&relation);
        if let Some(whole) = self.tables.get_mut(&relation).or(marked) {
            whole.stands = whole.stands || self.open.stands(tier, relation, None);
            return;
        }
        let stands = self.open.stands(tier, relation, Some(key));
        let note = Note::new(voids_lease, stands);
        if self.marked.take(relation, key, note) {
            return;
        }
        // Of a temporary table there is nothing in the tier, and nothing of the tier is for its
        // marks.
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
            let (extent, stands) = (Extent::Rows, true);
            self.note_extent(relation, Whole { extent, stands });
        }
    }

    /// A change that was noted under a savepoint can be taken back no more.
    fn stand(&mut self, relation: u32, key: Option<&[u8]>) {
        let lists = [&mut self.keys, &mut self.marked.keys];
        for notes in lists.into_iter().filter_map(|list| list.get_mut(&relation)) {
            if let Some(note) = key.and_then(|key| notes.get_mut(key)) {
                note.stands = true;
            }
        }
        // Where it counts as all of the cache by now, that does.
        let lists = [&mut self.tables, &mut self.marked.tables];
        for whole in lists.into_iter().filter_map(|list| list.get_mut(&relation)) {
            whole.stands = true;
        }
    }

    /// Rows of a cache changed, or entries of it go.
    fn touch(&mut self, relation: Oid) {
        let relation = relation.to_u32();
        let is_known = self.touched.last() == Some(&relation) || self.touched.contains(&relation);
        if !is_known {
            memory::push(&mut self.touched, relation);
        }
    }

    /// Caches that the transaction has changed, and whether as a whole: those whose rows it has, and
    /// those that the tier knows and whose definition it has. Not other relations', and no temporary
    /// ones, with which Postgres prepares nothing.
    fn touched_caches(&self) -> Vec<(u32, bool)> {
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
        touched.sort_unstable(); // two transactions in one order
        touched.dedup();
        touched
    }

    /// What is done at the end beside unmarking, in the order in which a record is undone backwards.
    fn note_for_later(&mut self, tier: &Tier, touched: &[(u32, bool)]) {
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
                if slots::find(tier, cache).is_some() {
                    memory::push(&mut later, mark(cache));
                }
            }
        }
        for cache in held::take_stores() {
            memory::push(&mut later, Mark::Stores(cache));
        }
        self.marks.put_first(later);
        for cache in std::mem::take(&mut self.outdated) {
            self.marks.add(Mark::Outdated(cache));
        }
        // Before anything is undone, whoever asks for changes by then.
        if self.record.is_some() || !self.marks.is_empty() {
            for &(relation, _) in touched {
                let cache = CacheId::of(Oid::from_u32(relation));
                self.marks.add(Mark::Told(cache));
            }
        }
    }

    fn note_change(&mut self, relation: Oid, extent: Extent) {
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
            return self.marks.table(tier, relation.to_u32(), extent);
        }
        let stands = self.open.stands(tier, relation.to_u32(), None);
        self.note_extent(relation.to_u32(), Whole { extent, stands });
    }

    fn note_extent(&mut self, relation: u32, mut whole: Whole) {
        let keys = self.keys.remove(&relation).unwrap_or_default();
        whole.stands |= keys.values().any(|note| note.stands);
        let known = self.tables.entry(relation).or_insert(whole);
        known.stands |= whole.stands;
        if whole.extent == Extent::Definition {
            known.extent = whole.extent;
        }
    }

    fn mark(&mut self) {
        let Some(tier) = tier() else {
            return;
        };
        for cache in std::mem::take(&mut self.removals) {
            self.marks.removal(tier, cache);
        }
        for (relation, whole) in std::mem::take(&mut self.tables) {
            self.marks.table(tier, relation, whole.extent);
            let known = self.marked.tables.entry(relation).or_insert(whole);
            known.stands |= whole.stands;
        }
        for (relation, keys) in std::mem::take(&mut self.keys) {
            let noted = keys.iter().map(|(key, note)| (&key[..], note.voids_lease));
            self.marks.keys(tier, relation, noted);
            match self.marked.keys.entry(relation) {
                Entry::Vacant(place) => drop(place.insert(keys)),
                Entry::Occupied(mut marked) => join(marked.get_mut(), keys),
            }
        }
    }

    /// Where somebody is to be told.
    fn announce(&mut self) {
        let changed = !self.marked.keys.is_empty() || !self.marked.tables.is_empty();
        if let Some(tier) = tier().filter(|tier| changed && tier.is_tracked())
            && transaction::has_xid()
        {
            let xid = transaction::full_xid();
            self.announced = tier.control().telling.begin(xid);
        }
    }

    /// The commit is visible, and the marks still stand.
    fn tell(&self, tier: &Tier) {
        let standing = |(relation, whole): (&u32, &Whole)| whole.stands.then_some(*relation);
        let whole = self.marked.tables.iter().filter_map(standing);
        for relation in whole.chain(self.late.iter().copied()) {
            told::tell_cache(tier, relation);
        }
        for (&relation, notes) in &self.marked.keys {
            told::tell_keys(tier, relation, notes);
        }
    }

    fn end(&mut self, committed: bool) {
        let ended = std::mem::take(self);
        let Some(tier) = tier() else {
            return;
        };
        if committed && tier.is_tracked() {
            ended.tell(tier);
        }
        if let Some(announced) = ended.announced {
            tier.control().telling.end(announced);
        }
        if committed {
            for cache in ended.outdated {
                load_token::note_removal(tier, cache);
            }
        }
        if let Some(record) = ended.record {
            lowering::lower(tier, record, || Some(committed));
        }
        ended.marks.undo(tier, committed);
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

fn join(notes: &mut Notes, later: Notes) {
    for (key, note) in later {
        match notes.entry(key) {
            Entry::Vacant(place) => drop(place.insert(note)),
            Entry::Occupied(mut known) => known.get_mut().join(note),
        }
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
