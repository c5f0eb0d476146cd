//! The notes of a transaction about entries whose source rows it has changed, with one part per savepoint. A note lasts
//! until its entries are removed. `open::removal` removes them; `definition::declare` declares dependencies.
//!
//! No note survives the rollback of its transaction or savepoint; otherwise entries would be removed although their
//! rows have not changed.

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

/// The limit on the bytes of keys that a transaction notes. Beyond the limit, every cache for which the transaction
/// notes one more key is cleared as a whole.
const MOST_BYTES: usize = 64 << 20;

/// The notes about one cache.
#[derive(Default)]
pub struct Noted {
    /// Whether every entry of the cache is to be removed.
    pub all: bool,
    pub keys: Keys,
}

/// The notes of each cache. They are sorted by the cache's OID, so that two transactions lock in the same order.
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
    /// Notes a key. Returns the number of bytes by which the notes have grown.
    fn note(&mut self, key: &[u8]) -> usize {
        let before = self.keys.size();
        if !self.all {
            self.keys.insert(key);
        }
        self.keys.size() - before
    }

    /// Notes that all entries changed, and forgets the single keys.
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
    /// The number of bytes that the noted keys have taken so far.
    bytes: usize,
    /// Notes that the commit is processing. Triggers may look up entries during the commit, so these notes still hide
    /// entries.
    leaving: Vec<Rc<ByCache>>,
    /// Whether a note was added after the last removal of entries.
    pending: bool,
    /// The notes that were added after the last removal; None means all notes. A session that alternates between
    /// changing rows and reading a cache then removes only these entries, not all of them each time.
    fresh: Option<Savepoints<ByCache>>,
    /// Notes that were processed under a savepoint, by the level that added them, so that a rollback to the savepoint
    /// restores exactly these notes.
    removed: Savepoints<Savepoints<ByCache>>,
    /// The nesting level at the start of the removal that is in progress; None if no removal is in progress. A lookup
    /// during the removal does not start another removal.
    removing: Option<i32>,
    /// Children, with their parents, that were added to a table on which entries depend, or removed from it.
    children: Vec<(Oid, Oid)>,
    /// Caches that became partitions, or stopped being partitions.
    placed: Vec<Oid>,
    /// Keys of memory caches, by cache, that this session has stored after their last note.
    stored: HashMap<u32, HashSet<Box<[u8]>>>,
    /// Whether the notes were processed at the end of the transaction. That end may be a PREPARE TRANSACTION that is
    /// about to be refused.
    ended: bool,
    /// Whether the transaction has declared dependencies. It has not noted its earlier changes for these dependencies.
    declared: bool,
    /// Caches whose entries depend on entries that a parallel query cannot remove; None until `look_behind` has found
    /// them.
    behind: Option<HashSet<u32>>,
    /// Caches that the end of the transaction has cleared, under a lock that keeps other sessions out.
    cleared: HashSet<u32>,
}

impl Transaction {
    fn is_unsettled(&self) -> bool {
        self.pending && self.removing.is_none()
    }

    /// Returns whether removing the noted entries of other caches may remove entries of this cache, too.
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

/// Notes a change of a row on which the entry with this key depends. Skips keys that no entry can have.
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

/// Notes that all rows on which entries of a cache depend were removed or replaced.
pub fn note_all(cache: Oid) {
    note_in(cache, Noted::note_all);
    forget_stored(cache, None);
}

/// Notes that a table on which entries depend has gained a child, or lost one.
pub fn note_child(child: Oid, parent: Oid) {
    with(|t| t.children.push((child, parent)));
    refuse_if_preparing();
}

/// Notes that a cache became a partition of another table, or stopped being a partition.
pub fn note_placed(cache: Oid) {
    with(|t| bytes::push(&mut t.placed, cache));
}

/// Removes one noted cache and returns it. Returns None if no cache is left.
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

/// Returns whether the transaction must remove entries, or create triggers on children, when it commits.
pub fn has_noted() -> bool {
    let to_follow = |&(child, parent): &(Oid, Oid)| is_to_follow(child, parent);
    look(|t| t.ended || !t.noted.is_empty() || t.children.iter().any(to_follow))
}

/// Records that the commit is about to process the notes.
pub fn note_end() {
    let ended = has_noted();
    with(|t| t.ended |= ended);
}

/// Returns whether a child was added to, or removed from, a table on which entries depend, or a cache became a
/// partition or stopped being a partition.
pub fn has_children() -> bool {
    look(|t| !(t.children.is_empty() && t.placed.is_empty()))
}

/// Returns the caches with entries to remove, sorted by OID. The value is true if all entries of the cache are to be
/// removed.
pub fn caches() -> BTreeMap<u32, bool> {
    let mut caches = BTreeMap::new();
    look(|t| {
        for (&cache, Noted { all, .. }) in t.noted.iter().flatten() {
            *caches.entry(cache).or_default() |= all;
        }
    });
    caches
}

/// Returns whether a noted child is not a partition and is still a child.
pub fn is_to_follow(child: Oid, parent: Oid) -> bool {
    inheritance::is_plain(child) && inheritance::is_child(child, parent)
}

/// Raises an error if a callback of another extension changes more rows after PREPARE TRANSACTION has removed entries,
/// because PREPARE has already released the locks that keep loaders out.
fn refuse_if_preparing() {
    if events::phase() == Phase::Preparing && has_noted() {
        ErrorReport::from(Error::PreparedWrite).report(PgLogLevel::ERROR);
    }
}

/// Finds the caches that depend, directly or through other caches, on the caches with noted entries. Any entry of these
/// caches may be affected; only the removal of the noted entries would show which entries are.
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

/// Returns whether this transaction may have changed rows on which entries depend without running a trigger, because
/// the trigger is new, not yet created, disabled or dropped. A rollback would restore the former state. The result
/// applies to all caches, because the cache of a dropped trigger is no longer known.
pub fn may_miss_changes() -> bool {
    transaction_local::any_changed()
        && (look(|t| t.declared || !t.children.is_empty()) || source::triggers_changed())
}

/// Returns whether the entry with this key is due for removal. A parallel query cannot remove the entry, and must skip
/// it instead.
pub fn is_due(cache: Oid, key: &[u8]) -> bool {
    look(|t| t.is_unsettled() && (t.notes(cache, key) || t.is_behind(cache)))
}

/// Returns the number of entries of a cache that may be due for removal. Returns `usize::MAX` if any entry may be.
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

/// Returns whether this session has changed a row on which this entry of a memory cache depends. Other sessions see the
/// entry until the commit. This session does not see it, unless it has stored the entry after the change.
#[inline]
pub fn hides(cache: Oid, key: &[u8]) -> bool {
    transaction_local::any_changed() && look(|t| t.hides(cache, key))
}

/// Returns whether [`hides`] may be true for any entry.
pub fn hides_some() -> bool {
    transaction_local::any_changed()
}

/// Returns whether this transaction has changed a row on which the entry with this key depends.
pub fn is_noted(cache: Oid, key: &[u8]) -> bool {
    transaction_local::any_changed() && look(|t| t.notes(cache, key))
}

/// Returns whether this transaction has changed a row on which any entry of the cache depends.
#[inline]
pub fn is_noted_in(cache: Oid) -> bool {
    transaction_local::any_changed() && look(|t| t.noted_of(cache).next().is_some())
}

/// Notes that this session has stored an entry of a memory cache, so that the session sees it.
#[inline]
pub fn note_stored(cache: Oid, key: &[u8]) {
    if hides(cache, key) {
        with(|t| {
            let stored = t.stored.entry(cache.to_u32()).or_default();
            stored.insert(bytes::copy(key).into_boxed_slice());
        });
    }
}

/// Forgets entries that this session has stored, because a change of their source makes them out of date. If `key` is
/// None, forgets all entries of the cache.
fn forget_stored(cache: Oid, key: Option<&[u8]>) {
    with(|t| match (key, t.stored.get_mut(&cache.to_u32())) {
        (Some(key), Some(stored)) => drop(stored.remove(key)),
        (None, Some(stored)) => stored.clear(),
        _ => {}
    });
}

/// Returns whether unprocessed notes exist and no removal is in progress.
pub fn is_unsettled() -> bool {
    look(Transaction::is_unsettled)
}

/// Returns whether the commit has entries to remove and no removal is in progress.
pub fn is_left_to_commit() -> bool {
    look(|t| t.removing.is_none() && !t.noted.is_empty())
}

/// Begins a removal. Remembers the savepoint level, so that the rollback of an inner savepoint does not end the
/// removal.
pub fn begin_removal() {
    with(|t| {
        t.pending = false;
        t.removing = Some(events::nesting_level());
    });
}

/// Ends the removal, after it has removed all noted entries.
pub fn end_removal() {
    with(|t| t.removing = None);
}

/// Returns the unprocessed notes of all levels, merged into one. They stay noted, because a savepoint may be rolled
/// back.
pub fn noted() -> Rc<ByCache> {
    let level = events::nesting_level();
    with(|t| {
        let fresh = t.fresh.replace(Savepoints::default());
        let fresh = fresh.unwrap_or_else(|| t.noted.copied(copied));
        // The rollback of the whole transaction discards all of its notes, so it must restore none.
        if level == OUTERMOST {
            return Rc::new(fresh.into_one());
        }
        t.removed.at(level).join(fresh.copied(copied));
        Rc::new(fresh.into_one())
    })
}

/// The nesting level outside any savepoint.
const OUTERMOST: i32 = 1;

/// Takes all notes for the commit. They no longer count as noted, but still hide their entries.
pub fn take_noted() -> Rc<ByCache> {
    with(|t| {
        let all = Rc::new(std::mem::take(&mut t.noted).into_one());
        t.fresh = None;
        t.removed = Savepoints::default();
        t.leaving.push(Rc::clone(&all));
        all
    })
}

/// Notes that the end of the transaction clears a cache. Returns whether the cache was already cleared.
pub fn note_cleared(cache: Oid) -> bool {
    !with(|t| t.cleared.insert(cache.to_u32()))
}

/// Removes a noted child and its parent and returns them. Returns None if no child is left.
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

/// Drops the notes of a savepoint that was rolled back, and restores the older notes that were processed under it.
pub fn roll_back_savepoint(level: i32) {
    with(|t| {
        drop(t.noted.roll_back(level));
        if let Some(fresh) = &mut t.fresh {
            drop(fresh.roll_back(level));
            let mut back = t.removed.roll_back(level);
            drop(back.roll_back(level));
            fresh.join(back);
        }
        // The rollback of a savepoint that a trigger has made during the removal does not end the removal.
        if t.removing.is_none_or(|since| level <= since) {
            t.pending = !t.fresh.as_ref().unwrap_or(&t.noted).is_empty();
            t.removing = None;
        }
        t.behind = None;
    });
}
