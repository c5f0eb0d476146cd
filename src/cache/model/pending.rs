//! Removals that are pending: what changed rows say of entries that depend on them, by savepoint,
//! until the entries are removed. Who removes them, and when, is `open::removal`; how dependencies
//! are declared, `definition::declare`.
//!
//! Guards that nothing is left of it when the transaction, or the savepoint, is rolled back.

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

/// Bytes that a transaction takes for keys at most. Beyond that each cache of which it notes another key is
/// cleared as a whole.
const MOST_BYTES: usize = 64 << 20;

/// What changed rows say of one cache.
#[derive(Default)]
pub struct Noted {
    /// All of it depends on rows that are gone.
    pub all: bool,
    pub keys: Keys,
}

/// By the cache's oid, so that two transactions take locks in one order.
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
    /// Notes a key; how many bytes more that takes.
    fn note(&mut self, key: &[u8]) -> usize {
        let before = self.keys.size();
        if !self.all {
            self.keys.insert(key);
        }
        self.keys.size() - before
    }

    /// All of it counts as changed, and no key need be remembered.
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

/// A copy that raises 53200 where there is no memory for it.
fn copied(by_cache: &ByCache) -> ByCache {
    let mut copy = ByCache::new();
    for (&cache, noted) in by_cache {
        copy.entry(cache).or_default().add(noted);
    }
    copy
}

/// What the present transaction has noted, and how far its removal has come.
#[derive(Default)]
struct Transaction {
    noted: Savepoints<ByCache>,
    /// Bytes that its keys have taken so far.
    bytes: usize,
    /// What was noted and is being removed by the commit, during which triggers may still look.
    leaving: Vec<Rc<ByCache>>,
    /// Something was noted since the entries were last removed.
    pending: bool,
    /// What was noted since then; None is all. A session that changes rows and looks at a cache in
    /// turn does not remove all of it each time.
    fresh: Option<Savepoints<ByCache>>,
    /// What was removed under a savepoint, and at which level it had been noted: a rollback to the
    /// savepoint brings that back, and nothing else.
    removed: Savepoints<Savepoints<ByCache>>,
    /// The entries are being removed, since this depth of savepoints: what is done for that does
    /// not begin it again.
    removing: Option<i32>,
    /// Children, and their parents, that have come to a table on which entries depend, or have left
    /// it.
    children: Vec<(Oid, Oid)>,
    /// Caches that have become partitions, or are such no longer.
    placed: Vec<Oid>,
    /// Keys of memory caches, by cache, that this session has stored itself since they were last
    /// noted.
    stored: HashMap<u32, HashSet<Box<[u8]>>>,
    /// What was noted has been seen to at the end of the transaction, which may be a PREPARE that is to be refused.
    ended: bool,
    /// Dependencies have come: what the transaction had changed before them was not told.
    declared: bool,
    /// Caches that depend on entries which a parallel query cannot remove, once it has asked.
    behind: Option<HashSet<u32>>,
    /// Caches that the end of the transaction has cleared, under a lock that keeps others out.
    cleared: HashSet<u32>,
}

impl Transaction {
    fn is_unsettled(&self) -> bool {
        self.pending && self.removing.is_none()
    }

    /// Whether entries of this cache may go with those of another one that are to be removed.
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

/// A row changed on which the entry under this key depends. No entry can be under some keys.
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

/// All rows are gone on which entries depend, or are other ones.
pub fn note_all(cache: Oid) {
    note_in(cache, Noted::note_all);
    forget_stored(cache, None);
}

/// A table on which entries depend has got a child, or lost one.
pub fn note_child(child: Oid, parent: Oid) {
    with(|t| t.children.push((child, parent)));
    refuse_if_preparing();
}

/// A cache has become a partition of another table, or is such no longer.
pub fn note_placed(cache: Oid) {
    with(|t| bytes::push(&mut t.placed, cache));
}

/// Takes one of these.
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

/// Whether the transaction has entries to remove when it commits.
pub fn has_noted() -> bool {
    let to_follow = |&(child, parent): &(Oid, Oid)| is_to_follow(child, parent);
    look(|t| t.ended || !t.noted.is_empty() || t.children.iter().any(to_follow))
}

/// What is noted is about to be seen to.
pub fn note_end() {
    let ended = has_noted();
    with(|t| t.ended |= ended);
}

/// Whether tables have come, or gone, as children of those on which entries depend, or caches as partitions.
pub fn has_children() -> bool {
    look(|t| !(t.children.is_empty() && t.placed.is_empty()))
}

/// The caches with entries to remove, in the order of their oids, and whether that is all of them.
pub fn caches() -> BTreeMap<u32, bool> {
    let mut caches = BTreeMap::new();
    look(|t| {
        for (&cache, Noted { all, .. }) in t.noted.iter().flatten() {
            *caches.entry(cache).or_default() |= all;
        }
    });
    caches
}

/// Whether a child has come that is no partition, and is still there.
pub fn is_to_follow(child: Oid, parent: Oid) -> bool {
    inheritance::is_plain(child) && inheritance::is_child(child, parent)
}

/// What depends on changed rows was removed before PREPARE TRANSACTION, and now another extension's
/// callback changes more of them: then locks that keep loaders out were given up already.
fn refuse_if_preparing() {
    if events::phase() == Phase::Preparing && has_noted() {
        ErrorReport::from(Error::PreparedWrite).report(PgLogLevel::ERROR);
    }
}

/// Finds the caches that depend on those with entries to remove, and so on. Which of their entries
/// go is said by rows that stay for now: any may.
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

/// Another cache depends on something.
pub fn note_declared() {
    with(|t| {
        t.declared = true;
        t.behind = None;
    });
}

/// Whether this transaction may have changed rows on which entries depend without a word from their
/// triggers, because these are new, to come, off or gone, and a rollback would bring back what was
/// before. Of no cache in particular: whose trigger it was can no longer be told.
pub fn may_miss_changes() -> bool {
    transaction_local::any_changed()
        && (look(|t| t.declared || !t.children.is_empty()) || source::triggers_changed())
}

/// Whether the entry under this key would have been removed before anybody looks for it, but for a
/// parallel query.
pub fn is_due(cache: Oid, key: &[u8]) -> bool {
    look(|t| t.is_unsettled() && (t.notes(cache, key) || t.is_behind(cache)))
}

/// How many entries of a cache may be due.
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

/// Whether this session has changed a row on which this entry of a memory cache depends. For others
/// it stays until the commit; the session itself does not find it, until it has stored one itself.
#[inline]
pub fn hides(cache: Oid, key: &[u8]) -> bool {
    transaction_local::any_changed() && look(|t| t.hides(cache, key))
}

/// Whether [`hides`] may say yes of any entry.
pub fn hides_some() -> bool {
    transaction_local::any_changed()
}

/// Whether this transaction has changed a row on which the entry under this key depends.
pub fn is_noted(cache: Oid, key: &[u8]) -> bool {
    transaction_local::any_changed() && look(|t| t.notes(cache, key))
}

/// Whether this transaction has changed a row on which some entry of the cache depends.
#[inline]
pub fn is_noted_in(cache: Oid) -> bool {
    transaction_local::any_changed() && look(|t| t.noted_of(cache).next().is_some())
}

/// This session has stored an entry of a memory cache, whatever it was made of.
#[inline]
pub fn note_stored(cache: Oid, key: &[u8]) {
    if hides(cache, key) {
        with(|t| {
            let stored = t.stored.entry(cache.to_u32()).or_default();
            stored.insert(bytes::copy(key).into_boxed_slice());
        });
    }
}

/// What was stored before a change is old after it.
fn forget_stored(cache: Oid, key: Option<&[u8]>) {
    with(|t| match (key, t.stored.get_mut(&cache.to_u32())) {
        (Some(key), Some(stored)) => drop(stored.remove(key)),
        (None, Some(stored)) => stored.clear(),
        _ => {}
    });
}

/// Whether something is noted that is not removed yet, and nobody is at it.
pub fn is_unsettled() -> bool {
    look(Transaction::is_unsettled)
}

/// Whether the commit has something to remove, and nobody is at it.
pub fn is_left_to_commit() -> bool {
    look(|t| t.removing.is_none() && !t.noted.is_empty())
}

/// Begins a removal; its savepoint level is remembered, so that one that is rolled back inside of
/// it does not end it.
pub fn begin_removal() {
    with(|t| {
        t.pending = false;
        t.removing = Some(events::nesting_level());
    });
}

/// Ends it, when all that was noted is removed.
pub fn end_removal() {
    with(|t| t.removing = None);
}

/// What is noted and not removed yet, as one. It stays noted: a savepoint may be rolled back.
pub fn noted() -> Rc<ByCache> {
    let level = events::nesting_level();
    with(|t| {
        let fresh = t.fresh.replace(Savepoints::default());
        let fresh = fresh.unwrap_or_else(|| t.noted.copied(copied));
        // With the whole transaction goes all that was noted in it.
        if level == OUTERMOST {
            return Rc::new(fresh.into_one());
        }
        t.removed.at(level).join(fresh.copied(copied));
        Rc::new(fresh.into_one())
    })
}

/// The nesting level outside of any savepoint.
const OUTERMOST: i32 = 1;

/// Everything that is noted, for the commit: it is noted no more, and still hides what it names.
pub fn take_noted() -> Rc<ByCache> {
    with(|t| {
        let all = Rc::new(std::mem::take(&mut t.noted).into_one());
        t.fresh = None;
        t.removed = Savepoints::default();
        t.leaving.push(Rc::clone(&all));
        all
    })
}

/// The end of the transaction clears a cache; whether it had done so before.
pub fn note_cleared(cache: Oid) -> bool {
    !with(|t| t.cleared.insert(cache.to_u32()))
}

/// A child that has come to a table on which entries depend, or has left it, and that table.
pub fn take_child() -> Option<(Oid, Oid)> {
    match look(|t| t.children.is_empty()) {
        true => None,
        false => with(|t| t.children.pop()),
    }
}

/// The transaction has ended.
pub fn forget() {
    with(|t| *t = Transaction::default());
}

/// The savepoint of this level was released.
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

/// The savepoint of this level was rolled back, and with it what was removed under it.
pub fn roll_back_savepoint(level: i32) {
    with(|t| {
        drop(t.noted.roll_back(level));
        if let Some(fresh) = &mut t.fresh {
            drop(fresh.roll_back(level));
            let mut back = t.removed.roll_back(level);
            drop(back.roll_back(level));
            fresh.join(back);
        }
        // One that a trigger made while we remove is over; we go on.
        if t.removing.is_none_or(|since| level <= since) {
            t.pending = !t.fresh.as_ref().unwrap_or(&t.noted).is_empty();
            t.removing = None;
        }
        t.behind = None;
    });
}
