//! Notes of a transaction, by savepoint: the entries that depend on rows that it has changed, until these entries are
//! removed. `open::removal` removes them; `definition::declare` declares dependencies.
//!
//! Guards that no note survives when the transaction, or the savepoint, is rolled back; otherwise entries would be
//! removed although their rows have not changed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::key;
use super::key_set::Keys;
use super::savepoints::{Join, Savepoints};
use crate::error::Error;
use crate::pg::catalog::inheritance;
use crate::pg::events::{self, Phase};
use crate::pg::hooks::{dependency, source};
use crate::pg::memory as bytes;
use crate::pg::session::transaction_local::{self, TransactionLocal};

/// Limit of a transaction's memory for keys, in bytes. Beyond it, each cache for which it notes another key is
/// cleared as a whole.
const MOST_BYTES: usize = 64 << 20;

/// The notes about one cache.
#[derive(Default)]
pub struct Noted {
    /// All entries depend on rows that were removed.
    pub all: bool,
    pub keys: Keys,
}

/// Notes by cache, sorted by the cache's oid, so that two transactions lock in the same order.
pub type ByCache = BTreeMap<u32, Noted>;

impl Join for ByCache {
    fn join(&mut self, later: ByCache) {
        for (cache, noted) in later {
            match self.entry(cache) {
                Entry::Vacant(place) => drop(place.insert(noted)),
                Entry::Occupied(mut own) => own.get_mut().add(&noted),
            }
        }
    }
}

impl Noted {
    /// Notes a key. Returns how many more bytes the notes take.
    fn note(&mut self, key: &[u8]) -> usize {
        let before = self.keys.size();
        if !self.all {
            self.keys.insert(key);
        }
        self.keys.size() - before
    }

    /// Notes that all entries changed, so that no key need be remembered.
    fn note_all(&mut self) -> usize {
        self.all = true;
        self.keys = Keys::default();
        0
    }

    fn add(&mut self, other: &Noted) {
        self.all |= other.all;
        self.keys.insert_all(&other.keys);
    }
}

/// Copies the notes. Raises 53200 when out of memory.
fn copied(by_cache: &ByCache) -> ByCache {
    let mut copy = ByCache::new();
    for (&cache, noted) in by_cache {
        copy.entry(cache).or_default().add(noted);
    }
    copy
}

/// The notes of the current transaction, and the progress of their removal.
#[derive(Default)]
struct Transaction {
    noted: Savepoints<ByCache>,
    /// Bytes that its keys have taken so far.
    bytes: usize,
    /// Notes that the commit is processing. Triggers may still look entries up meanwhile, so these notes still hide
    /// entries.
    leaving: Vec<Rc<ByCache>>,
    /// Whether a note was added since the entries were last removed.
    pending: bool,
    /// Notes added since then; None means all. So a session that alternates between changing rows and reading a cache
    /// does not remove everything each time.
    fresh: Option<Savepoints<ByCache>>,
    /// Notes processed under a savepoint, by the level at which they were added: a rollback to the savepoint restores
    /// these, and only these.
    removed: Savepoints<Savepoints<ByCache>>,
    /// Set while entries are being removed, to the nesting level at the start. A look-up within the removal does not
    /// start another removal.
    removing: Option<i32>,
    /// Children, with their parents, that were added to a table on which entries depend, or removed from it.
    children: Vec<(Oid, Oid)>,
    /// Caches that became partitions, or stopped being partitions.
    placed: Vec<Oid>,
    /// Keys of memory caches, by cache, that this session has stored itself since they were last noted.
    stored: HashMap<u32, HashSet<Box<[u8]>>>,
    /// Whether the notes were processed at the end of the transaction, which may be a PREPARE that is to be refused.
    ended: bool,
    /// Whether dependencies were declared: earlier changes of the transaction were not noted for them.
    declared: bool,
    /// Caches whose entries depend on entries that a parallel query cannot remove; None until it has looked for them.
    behind: Option<HashSet<u32>>,
    /// Caches that the end of the transaction has cleared, under a lock that keeps other sessions out.
    cleared: HashSet<u32>,
}

impl Transaction {
    fn is_unsettled(&self) -> bool {
        self.pending && self.removing.is_none()
    }

    /// Returns whether entries of this cache may be removed with those of another one.
    fn is_behind(&self, cache: Oid) -> bool {
        let among = |behind: &HashSet<u32>| behind.contains(&cache.to_u32());
        self.is_unsettled() && self.behind.as_ref().is_some_and(among)
    }

    fn hides(&self, cache: Oid, key: &[u8]) -> bool {
        let own = || self.stored.get(&cache.to_u32());
        let noted = self.notes(cache, key) && !own().is_some_and(|own| own.contains(key));
        noted || self.is_behind(cache)
    }

    fn notes(&self, cache: Oid, key: &[u8]) -> bool {
        let noted_by = |noted: &Noted| noted.all || noted.keys.find(key).is_some();
        self.noted_of(cache).any(noted_by)
    }

    fn noted_of(&self, cache: Oid) -> impl Iterator<Item = &Noted> {
        let leaving = self.leaving.iter().map(Rc::as_ref);
        let all = self.noted.iter().chain(leaving);
        all.filter_map(move |noted| noted.get(&cache.to_u32()))
    }
}

thread_local! {
    static TRANSACTION: TransactionLocal<Transaction> = TransactionLocal::default();
}

fn with<R>(change: impl FnOnce(&mut Transaction) -> R) -> R {
    TRANSACTION.with(|transaction| transaction.change(change))
}

fn look<R>(look: impl FnOnce(&Transaction) -> R) -> R {
    TRANSACTION.with(|transaction| transaction.look(look))
}

/// Notes that a row changed on which the entry under this key depends. Skips keys that no entry can have.
pub fn note(cache: Oid, key: &[u8]) {
    if key.is_empty() || key.len() > key::MAX_BYTES {
        return;
    }
    match look(|t| t.bytes > MOST_BYTES) {
        true => note_in(cache, Noted::note_all),
        false => note_in(cache, |noted| noted.note(key)),
    }
    forget_stored(cache, Some(key));
}

/// Notes that all rows on which entries depend were removed or replaced.
pub fn note_all(cache: Oid) {
    note_in(cache, Noted::note_all);
    forget_stored(cache, None);
}

/// Notes that a table on which entries depend has gained a child, or lost one.
pub fn note_child(child: Oid, parent: Oid) {
    with(|t| t.children.push((child, parent)));
    refuse_if_preparing();
}

/// Notes that a cache became a partition of another table, or stopped being one.
pub fn note_placed(cache: Oid) {
    with(|t| bytes::push(&mut t.placed, cache));
}

/// Takes a cache that became a partition of another table, or stopped being one.
pub fn take_placed() -> Option<Oid> {
    match look(|t| t.placed.is_empty()) {
        true => None,
        false => with(|t| t.placed.pop()),
    }
}

fn note_in(cache: Oid, note: impl Fn(&mut Noted) -> usize) {
    let level = events::nesting_level();
    with(|t| {
        t.bytes += note(t.noted.at(level).entry(cache.to_u32()).or_default());
        if let Some(fresh) = &mut t.fresh {
            note(fresh.at(level).entry(cache.to_u32()).or_default());
        }
        t.pending = true;
        t.behind = None;
    });
    refuse_if_preparing();
}

/// Returns whether the transaction has entries to remove when it commits.
pub fn has_noted() -> bool {
    let to_follow = |&(child, parent): &(Oid, Oid)| is_to_follow(child, parent);
    look(|t| t.ended || !t.noted.is_empty() || t.children.iter().any(to_follow))
}

/// Records that the notes are about to be processed.
pub fn note_end() {
    let ended = has_noted();
    with(|t| t.ended |= ended);
}

/// Returns whether tables were added or removed as children of those on which entries depend, or caches as
/// partitions.
pub fn has_children() -> bool {
    look(|t| !(t.children.is_empty() && t.placed.is_empty()))
}

/// Returns the caches with entries to remove, sorted by oid, and whether all of their entries are.
pub fn caches() -> BTreeMap<u32, bool> {
    let mut caches = BTreeMap::new();
    look(|t| {
        for (&cache, Noted { all, .. }) in t.noted.iter().flatten() {
            *caches.entry(cache).or_default() |= all;
        }
    });
    caches
}

/// Returns whether a child was added that is not a partition, and still is a child.
pub fn is_to_follow(child: Oid, parent: Oid) -> bool {
    inheritance::is_plain(child) && inheritance::is_child(child, parent)
}

/// Raises an error if another extension's callback changes more rows after entries were removed before PREPARE
/// TRANSACTION: the locks that keep loaders out were released already.
fn refuse_if_preparing() {
    if events::phase() == Phase::Preparing && has_noted() {
        ErrorReport::from(Error::PreparedWrite).report(PgLogLevel::ERROR);
    }
}

/// Finds the caches that depend on those with entries to remove, and the caches that depend on these in turn. The rows
/// that would show which of their entries to remove still exist, so any entry may be affected.
pub fn look_behind() {
    if look(|t| t.behind.is_some()) {
        return;
    }
    let mut sources: Vec<u32> = look(|t| {
        let caches = t.noted.iter().flat_map(|noted| noted.keys().copied());
        bytes::collect(caches)
    });
    let mut behind = HashSet::new();
    while let Some(source) = sources.pop() {
        for found in dependency::on_table(Oid::from_u32(source)) {
            let cache = found.cache.to_u32();
            if behind.insert(cache) {
                bytes::push(&mut sources, cache);
            }
        }
    }
    with(|t| t.behind = Some(behind));
}

/// Notes that another cache depends on a table.
pub fn note_declared() {
    with(|t| {
        t.declared = true;
        t.behind = None;
    });
}

/// Returns whether this transaction may have changed rows on which entries depend without a trigger noticing, because
/// the trigger is new, not created yet, disabled or dropped, and a rollback would restore the former state. The answer
/// applies to no cache in particular, because the cache of such a trigger can no longer be determined.
pub fn may_miss_changes() -> bool {
    transaction_local::any_changed()
        && (look(|t| t.declared || !t.children.is_empty()) || source::triggers_changed())
}

/// Returns whether the entry under this key is due for removal. A parallel query cannot remove it, and must skip it
/// instead.
pub fn is_due(cache: Oid, key: &[u8]) -> bool {
    look(|t| t.is_unsettled() && (t.notes(cache, key) || t.is_behind(cache)))
}

/// Returns how many entries of a cache may be due.
pub fn due(cache: Oid) -> usize {
    let count = |noted: &Noted| match noted.all {
        true => usize::MAX,
        false => noted.keys.len(),
    };
    look(|t| match t.is_unsettled() {
        true if t.is_behind(cache) => usize::MAX,
        true => t.noted_of(cache).map(count).fold(0, usize::saturating_add),
        false => 0,
    })
}

/// Returns whether this session has changed a row on which this entry of a memory cache depends. Other sessions see
/// the entry until the commit; this session does not, until it has stored one itself.
#[inline]
pub fn hides(cache: Oid, key: &[u8]) -> bool {
    transaction_local::any_changed() && look(|t| t.hides(cache, key))
}

/// Returns whether [`hides`] may be true for any entry.
pub fn hides_some() -> bool {
    transaction_local::any_changed()
}

/// Returns whether this transaction has changed a row on which the entry under this key depends.
pub fn is_noted(cache: Oid, key: &[u8]) -> bool {
    transaction_local::any_changed() && look(|t| t.notes(cache, key))
}

/// Returns whether this transaction has changed a row on which an entry of the cache depends.
#[inline]
pub fn is_noted_in(cache: Oid) -> bool {
    transaction_local::any_changed() && look(|t| t.noted_of(cache).next().is_some())
}

/// Notes that this session has stored an entry of a memory cache, from whatever source.
#[inline]
pub fn note_stored(cache: Oid, key: &[u8]) {
    if hides(cache, key) {
        with(|t| {
            let stored = t.stored.entry(cache.to_u32()).or_default();
            stored.insert(bytes::copy(key).into_boxed_slice());
        });
    }
}

/// Forgets stored entries when their source changes, because they are out of date then.
fn forget_stored(cache: Oid, key: Option<&[u8]>) {
    with(|t| match (key, t.stored.get_mut(&cache.to_u32())) {
        (Some(key), Some(stored)) => drop(stored.remove(key)),
        (None, Some(stored)) => stored.clear(),
        _ => {}
    });
}

/// Returns whether notes exist that are not processed yet, while no removal runs.
pub fn is_unsettled() -> bool {
    look(Transaction::is_unsettled)
}

/// Returns whether the commit has entries to remove, while no removal runs.
pub fn is_left_to_commit() -> bool {
    look(|t| t.removing.is_none() && !t.noted.is_empty())
}

/// Begins a removal. Remembers its savepoint level, so that the rollback of a savepoint inside of it does not end it.
pub fn begin_removal() {
    with(|t| {
        t.pending = false;
        t.removing = Some(events::nesting_level());
    });
}

/// Ends the removal when all noted entries are removed.
pub fn end_removal() {
    with(|t| t.removing = None);
}

/// Returns the notes that are not processed yet, joined. They stay noted, because a savepoint may be rolled back.
pub fn noted() -> Rc<ByCache> {
    let level = events::nesting_level();
    with(|t| {
        let fresh = t.fresh.replace(Savepoints::default());
        let fresh = fresh.unwrap_or_else(|| t.noted.copied(copied));
        // A rollback of the whole transaction discards all of its notes, so none would have to be restored.
        if level == OUTERMOST {
            return Rc::new(fresh.into_one());
        }
        t.removed.at(level).join(fresh.copied(copied));
        Rc::new(fresh.into_one())
    })
}

/// The nesting level outside of any savepoint.
const OUTERMOST: i32 = 1;

/// Takes all notes, for the commit: they are no longer noted, but still hide their entries.
pub fn take_noted() -> Rc<ByCache> {
    with(|t| {
        let all = Rc::new(std::mem::take(&mut t.noted).into_one());
        t.fresh = None;
        t.removed = Savepoints::default();
        t.leaving.push(Rc::clone(&all));
        all
    })
}

/// Notes that the end of the transaction clears a cache. Returns whether it had done so before.
pub fn note_cleared(cache: Oid) -> bool {
    !with(|t| t.cleared.insert(cache.to_u32()))
}

/// Takes a child that was added to a table on which entries depend, or removed from it, and that table.
pub fn take_child() -> Option<(Oid, Oid)> {
    match look(|t| t.children.is_empty()) {
        true => None,
        false => with(|t| t.children.pop()),
    }
}

/// Drops all notes at the end of the transaction.
pub fn forget() {
    with(|t| *t = Transaction::default());
}

/// Merges the notes of a released savepoint into its parent.
pub fn release_savepoint(level: i32) {
    with(|t| {
        t.noted.release(level);
        if let Some(fresh) = &mut t.fresh {
            fresh.release(level);
        }
        match level - 1 {
            OUTERMOST => t.removed = Savepoints::default(),
            _ => t.removed.release(level),
        }
        for removed in t.removed.iter_mut() {
            removed.release(level);
        }
    });
}

/// Drops the notes of a savepoint that was rolled back, and restores those that were processed under it.
pub fn roll_back_savepoint(level: i32) {
    with(|t| {
        drop(t.noted.roll_back(level));
        if let Some(fresh) = &mut t.fresh {
            drop(fresh.roll_back(level));
            let mut back = t.removed.roll_back(level);
            drop(back.roll_back(level));
            fresh.join(back);
        }
        // A savepoint that a trigger has made during the removal does not end the removal.
        if t.removing.is_none_or(|since| level <= since) {
            t.pending = !t.fresh.as_ref().unwrap_or(&t.noted).is_empty();
            t.removing = None;
        }
        t.behind = None;
    });
}
