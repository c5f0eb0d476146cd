//! Dependencies of caches on tables: removing what depends on changed rows. How they are declared is `declare`.
//!
//! A trigger notes the keys (`pg::dependency`), this module removes the entries right before the commit:
//! so late because an entry that another session stored since the change was computed from the old row,
//! too; and it keeps the locks on entries short. In the changing session itself a function of the same
//! cache removes them earlier, so that it finds what a table shows it: nothing of an old row.
//!
//! Guards that nothing happens when the transaction, or the savepoint, is rolled back, and that entries
//! of a memory cache are fenced off until the commit is visible.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use pgrx::PgLogLevel;
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;

use super::keys::Keys;
use super::layers::{Layers, Notes};
use super::registry::{self, Cache, Storage};
use super::{coherence, declare, definition, key, leases, memory, table, watch};
use crate::error::Error;
use crate::pg::dependency;
use crate::pg::ending;
use crate::pg::events::{self, Change, Moment, Phase};
use crate::pg::kept::{self, Kept};
use crate::pg::memory as bytes;
use crate::pg::pause::{self, Window};
use crate::pg::privilege::AsOwner;
use crate::pg::tier::tier;
use crate::pg::{lock, relation, session, source, transaction};

/// What changed rows say of one cache.
#[derive(Default)]
struct Noted {
    /// All of it depends on rows that are gone.
    all: bool,
    keys: Keys,
}

/// By the cache's oid, so that two transactions take locks in one order.
type ByCache = BTreeMap<u32, Noted>;

impl Notes for ByCache {
    fn absorb(&mut self, later: ByCache) {
        for (cache, noted) in later {
            match self.entry(cache) {
                Entry::Vacant(place) => drop(place.insert(noted)),
                Entry::Occupied(mut own) => own.get_mut().add(&noted),
            }
        }
    }
}

impl Noted {
    fn add(&mut self, other: &Noted) {
        self.all |= other.all;
        self.keys.insert_all(&other.keys);
    }
}

#[derive(Default)]
struct Transaction {
    noted: Layers<ByCache>,
    /// What was noted and is being removed by the commit, during which triggers may still look.
    leaving: Vec<Rc<ByCache>>,
    /// Something was noted since the entries were last removed.
    pending: bool,
    /// The entries are being removed, since this depth of savepoints: what is done for that does not begin it
    /// again.
    removing: Option<i32>,
    /// Children, and their parents, that have come to a table on which entries depend, or have left it.
    children: Vec<(Oid, Oid)>,
    /// Keys of memory caches, by cache, that this session has stored itself since they were last noted.
    stored: HashMap<u32, HashSet<Box<[u8]>>>,
    /// Dependencies have come: what the transaction had changed before them was not told.
    declared: bool,
    /// Caches that depend on entries which a parallel query cannot remove, once it has asked.
    behind: Option<HashSet<u32>>,
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
        let layers = self.noted.iter().chain(leaving);
        layers.filter_map(move |layer| layer.get(&cache.to_u32()))
    }
}

thread_local! {
    static TRANSACTION: Kept<Transaction> = Kept::default();
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
    note_in(cache, |noted| {
        if !noted.all {
            noted.keys.insert(key);
        }
    });
    forget_stored(cache, Some(key));
}

/// All rows are gone on which entries depend, or are other ones.
pub fn note_all(cache: Oid) {
    note_in(cache, |noted| noted.all = true);
    forget_stored(cache, None);
}

/// A table on which entries depend has got a child, or lost one.
pub fn note_child(child: Oid, parent: Oid) {
    with(|t| t.children.push((child, parent)));
    ending::await_it();
    coherence::refuse_if_preparing();
}

fn note_in(cache: Oid, note: impl FnOnce(&mut Noted)) {
    with(|t| {
        note(
            t.noted
                .at(events::nesting_level())
                .entry(cache.to_u32())
                .or_default(),
        );
        t.pending = true;
        t.behind = None;
    });
    ending::await_it();
    coherence::refuse_if_preparing();
    if events::phase() == Phase::Committing {
        at_commit();
    }
}

/// Whether the transaction has entries to remove when it commits.
pub fn has_noted() -> bool {
    let to_follow = |&(child, parent): &(Oid, Oid)| declare::is_to_follow(child, parent);
    look(|t| !t.noted.is_empty() || !t.leaving.is_empty() || t.children.iter().any(to_follow))
}

/// Removes what depends on rows that this transaction has changed, before it looks at a cache itself. A
/// parallel query cannot: what it reads is asked for with `is_due`.
pub fn settle() {
    while look(Transaction::is_unsettled) {
        if session::in_parallel_mode() {
            return look_behind();
        }
        with(|t| t.pending = false);
        remove(When::Now);
    }
}

/// Finds the caches that depend on those with entries to remove, and so on. Which of their entries go is said by rows
/// that stay for now: any may.
fn look_behind() {
    if look(|t| t.behind.is_some()) {
        return;
    }
    let mut sources: Vec<u32> = look(|t| {
        let caches = t.noted.iter().flat_map(|layer| layer.keys().copied());
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

/// Whether this transaction may have changed rows on which entries depend without a word from their triggers, because
/// these are new, to come, off or gone, and a rollback would bring back what was before. Of no cache in particular:
/// whose trigger it was can no longer be told.
pub fn may_miss_changes() -> bool {
    kept::any() && (look(|t| t.declared || !t.children.is_empty()) || source::triggers_changed())
}

/// Whether the entry under this key would have been removed before anybody looks for it, but for a parallel
/// query.
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

/// Whether this session has changed a row on which this entry of a memory cache depends. For others it stays until
/// the commit; the session itself does not find it, until it has stored one itself.
#[inline]
pub fn hides(cache: Oid, key: &[u8]) -> bool {
    kept::any() && look(|t| t.hides(cache, key))
}

/// Whether this transaction has changed a row on which the entry under this key depends.
pub fn is_noted(cache: Oid, key: &[u8]) -> bool {
    kept::any() && look(|t| t.notes(cache, key))
}

/// This session has stored an entry of a memory cache, whatever it was made of.
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

/// Where others' code may run for the last time: the same as right before the commit, if some is needed for that.
pub fn at_end() {
    if look(|t| !t.children.is_empty()) || removing_runs_others_code() {
        finish(When::Ending);
    }
}

/// Asked under the locks that are kept until the commit: nobody else gives a cache a trigger after that.
fn removing_runs_others_code() -> bool {
    let mut noted = BTreeMap::<u32, bool>::new();
    look(|t| {
        for (&cache, Noted { all, .. }) in t.noted.iter().flatten() {
            *noted.entry(cache).or_default() |= all;
        }
    });
    let mut caches = noted
        .into_iter()
        .filter_map(|(relation, clears)| open(Oid::from_u32(relation), clears));
    caches.any(|cache| !cache.changes_alone())
}

/// Right before the commit: all of it, once more, and until removing notes nothing new.
pub fn at_commit() {
    finish(When::Commit);
}

fn finish(when: When) {
    follow_children();
    while look(|t| t.removing.is_none() && !t.noted.is_empty()) {
        with(|t| t.pending = false);
        remove(when);
        follow_children();
    }
}

fn follow_children() {
    while let Some((child, parent)) = with_any(|t| t.children.pop()) {
        let _writable = transaction::Writable::enter();
        let _snapshot = transaction::Snapshot::enter();
        declare::follow(child, parent);
    }
}

/// Changes what there is, if there is any.
fn with_any<R>(change: impl FnOnce(&mut Transaction) -> Option<R>) -> Option<R> {
    match look(|t| t.children.is_empty()) {
        true => None,
        false => with(change),
    }
}

/// Savepoints and the end of the transaction.
pub fn at_moment(moment: Moment) {
    match moment {
        Moment::Committed | Moment::Aborted => with(|t| *t = Transaction::default()),
        Moment::SubCommitted { level } => with(|t| t.noted.release(level)),
        Moment::SubAborted { level } => with(|t| {
            t.noted.roll_back(level);
            // One that a trigger made while we remove is over; we go on.
            if t.removing.is_none_or(|since| level <= since) {
                t.pending = !t.noted.is_empty(); // what was removed under it is back
                t.removing = None;
            }
            t.behind = None;
        }),
        _ => {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// While statements of the transaction may still come.
    Now,
    /// None comes any more, but what is deferred.
    Ending,
    Commit,
}

impl When {
    fn is_last(self) -> bool {
        self != When::Now
    }
}

/// Tables first: a memory cache's entries do not come back if that fails, and its fences stand until the
/// commit is visible.
fn remove(when: When) {
    with(|t| t.removing = Some(events::nesting_level()));
    let _writable = transaction::Writable::enter();
    let _snapshot = transaction::Snapshot::enter();
    let mut in_memory = Vec::new();
    let all = everything_noted(when);
    for (&relation, noted) in all.iter() {
        coherence::note_outdated(Oid::from_u32(relation));
        let clears = noted.all && when.is_last();
        let Some(cache) = open(Oid::from_u32(relation), clears) else {
            continue;
        };
        match cache.storage {
            Storage::Memory => in_memory.push((cache.relation, noted)),
            // One has become such a table since, or its cursor was closed by hand.
            _ if when == When::Commit && !cache.changes_alone() => refuse(&cache),
            _ => delete(&cache, noted, when),
        }
    }
    if when.is_last() {
        // Triggers have run since; one may have dropped the view, or made another of the name.
        for (relation, noted) in in_memory {
            if let Ok(cache) = registry::find(relation) {
                fence(&cache, noted);
            }
        }
    }
    with(|t| t.removing = None);
}

/// All layers in one; at the commit they are noted no more, and still hide what they name.
fn everything_noted(when: When) -> Rc<ByCache> {
    with(|t| match when {
        When::Ending | When::Commit => {
            let all = Rc::new(std::mem::take(&mut t.noted).into_one());
            t.leaving.push(Rc::clone(&all));
            all
        }
        When::Now => {
            let mut all = ByCache::new();
            for layer in t.noted.iter() {
                for (&cache, noted) in layer {
                    all.entry(cache).or_default().add(noted);
                }
            }
            Rc::new(all)
        }
    })
}

/// A relation that is gone meanwhile, or no cache any more, has no entries. A table gets the lock that it
/// will be changed under at once: two transactions that both `clear` it, and hold a weaker one before, would
/// wait for each other. What it was before the lock is no help: it may have a trigger or a foreign key by now.
fn open(relation: Oid, clears: bool) -> Option<Rc<Cache>> {
    let mode = match (registry::find(relation).ok()?.storage, clears) {
        (Storage::Memory, _) => lock::Mode::Read,
        (_, true) => lock::Mode::Remove,
        (_, false) => lock::Mode::Write,
    };
    if clears && mode == lock::Mode::Remove && tier().is_none() {
        // Before the table: who loads holds no lock on it yet, and would wait for ours.
        leases::keep_loaders_out(&*registry::find(relation).ok()?, None);
    }
    lock::relation(relation, mode);
    registry::find(relation).ok()
}

/// Raises 0A000.
fn refuse(cache: &Cache) {
    let name = relation::display_name(cache.relation);
    ErrorReport::from(Error::TooLateForTriggers(name)).report(PgLogLevel::ERROR);
}

fn delete(cache: &Cache, noted: &Noted, when: When) {
    let _owner = AsOwner::to_maintain(cache.relation);
    if noted.all {
        match when {
            When::Now => table::delete_all(cache),
            When::Ending | When::Commit => drop(definition::clear(cache)),
        }
        return;
    }
    if when.is_last() {
        keep_loaded_out(cache, &noted.keys);
    }
    table::delete_keys(cache, &noted.keys);
}

/// From here on nobody stores under these keys what he has loaded before our commit is visible, and what
/// others have stored already can be seen by who removes it. So the marks come first. Also of keys that have no
/// entry: somebody may be computing one from the old row.
fn keep_loaded_out(cache: &Cache, keys: &Keys) {
    coherence::note_keys(cache.relation, keys);
    match tier() {
        Some(tier) => {
            coherence::mark_early();
            pause::at(Window::MarkToRemove);
            if leases::has_open_stores(tier, cache.owner) {
                table::wait_for_unseen(cache, keys);
            }
        }
        // Who waits for us may have stored already: then his row is waited for, and the deadlock is Postgres' own.
        None => {
            if !leases::keep_loaders_out(cache, Some(keys)) {
                table::wait_for_unseen(cache, keys);
            }
        }
    }
}

fn fence(cache: &Cache, noted: &Noted) {
    let Some(tier) = tier() else {
        return; // no tier, no entries
    };
    let Some(slot) = memory::slot_to_fence(cache, tier) else {
        return; // no room for a cache, no entries
    };
    match noted.all {
        true => {
            watch::note_clear(cache.relation);
            coherence::fence_all(tier, slot, cache.owner);
        }
        false => {
            for key in noted.keys.iter() {
                watch::note(cache.relation, key, Change::Gone);
            }
            coherence::fence(tier, slot, cache.owner, noted.keys.iter());
        }
    }
}
