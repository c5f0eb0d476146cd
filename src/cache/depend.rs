//! Dependencies of caches on tables: declaring them, and removing what depends on changed rows.
//!
//! A trigger notes the keys (`pg::dependency`), this module removes the entries right before the commit:
//! so late because an entry that another session stored since the change was computed from the old row,
//! too; and it keeps the locks on entries short. In the changing session itself a function of the same
//! cache removes them earlier, so that it finds what a table shows it: nothing of an old row.
//!
//! Guards that nothing happens when the transaction, or the savepoint, is rolled back, and that entries
//! of a memory cache are fenced off until the commit is visible.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use pgrx::pg_sys::{Datum, OIDOID, Oid};

use super::keys::Keys;
use super::layers::{Layers, Notes};
use super::registry::{self, Cache, Storage};
use super::{coherence, definition, key, memory, table, watch};
use crate::error::Error;
use crate::pg::datum::Text;
use crate::pg::dependency;
use crate::pg::events::{self, Change, Moment, Phase};
use crate::pg::expression::Expression;
use crate::pg::kept::Kept;
use crate::pg::plan::query_once;
use crate::pg::privilege::AsOwner;
use crate::pg::tier::tier;
use crate::pg::{lock, relation, session, transaction};

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
    /// Something was noted since the entries were last removed.
    pending: bool,
    /// The entries are being removed, since this depth of savepoints: what is done for that does not begin it
    /// again.
    removing: Option<i32>,
}

impl Transaction {
    fn is_unsettled(&self) -> bool {
        self.pending && self.removing.is_none()
    }

    fn noted_of(&self, cache: Oid) -> impl Iterator<Item = &Noted> {
        self.noted
            .iter()
            .filter_map(move |layer| layer.get(&cache.to_u32()))
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
}

/// All rows are gone on which entries depend.
pub fn note_all(cache: Oid) {
    note_in(cache, |noted| noted.all = true);
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
    });
    coherence::refuse_if_preparing();
    if events::phase() == Phase::Committing {
        at_commit();
    }
}

/// Whether the transaction has entries to remove when it commits.
pub fn has_noted() -> bool {
    look(|t| !t.noted.is_empty())
}

/// Removes what depends on rows that this transaction has changed, before it looks at a cache itself. A
/// parallel query cannot: what it reads is asked for with `is_due`.
pub fn settle() {
    while look(Transaction::is_unsettled) && !session::in_parallel_mode() {
        with(|t| t.pending = false);
        remove(When::Now);
    }
}

/// Whether the entry under this key would have been removed before anybody looks for it, but for a parallel
/// query.
pub fn is_due(cache: Oid, key: &[u8]) -> bool {
    let noted_by = |noted: &Noted| noted.all || noted.keys.find(key).is_some();
    look(|t| t.is_unsettled() && t.noted_of(cache).any(noted_by))
}

/// How many entries of a cache may be due.
pub fn due(cache: Oid) -> usize {
    let count = |noted: &Noted| match noted.all {
        true => usize::MAX,
        false => noted.keys.len(),
    };
    look(|t| match t.is_unsettled() {
        true => t.noted_of(cache).map(count).fold(0, usize::saturating_add),
        false => 0,
    })
}

/// Right before the commit: all of it, once more, and until removing notes nothing new.
pub fn at_commit() {
    while look(|t| t.removing.is_none() && !t.noted.is_empty()) {
        with(|t| t.pending = false);
        remove(When::Commit);
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
        }),
        _ => {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// While statements of the transaction may still come.
    Now,
    Commit,
}

/// Tables first: a memory cache's entries do not come back if that fails, and its fences stand until the
/// commit is visible.
fn remove(when: When) {
    with(|t| t.removing = Some(events::nesting_level()));
    let _writable = transaction::Writable::enter();
    let _snapshot = transaction::Snapshot::enter();
    let mut in_memory = Vec::new();
    for (relation, noted) in everything_noted(when) {
        let clears = noted.all && when == When::Commit;
        let Some(cache) = open(Oid::from_u32(relation), clears) else {
            continue;
        };
        match cache.storage {
            Storage::Memory => in_memory.push((cache, noted)),
            _ => delete(&cache, &noted, when),
        }
    }
    if when == When::Commit {
        in_memory
            .iter()
            .for_each(|(cache, noted)| fence(cache, noted));
    }
    with(|t| t.removing = None);
}

/// All layers in one; at the commit they are needed no more.
fn everything_noted(when: When) -> ByCache {
    with(|t| match when {
        When::Commit => std::mem::take(&mut t.noted).into_one(),
        When::Now => {
            let mut all = ByCache::new();
            for layer in t.noted.iter() {
                for (&cache, noted) in layer {
                    all.entry(cache).or_default().add(noted);
                }
            }
            all
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
    lock::relation(relation, mode);
    registry::find(relation).ok()
}

fn delete(cache: &Cache, noted: &Noted, when: When) {
    let _owner = AsOwner::to_maintain(cache.relation);
    if noted.all {
        match when {
            When::Now => table::delete_all(cache),
            When::Commit => drop(definition::clear(cache)),
        }
        return;
    }
    if when == When::Commit {
        // Also of keys that have no entry: somebody may be computing one from the old row.
        coherence::note_keys(cache.relation, &noted.keys);
    }
    table::delete_keys(cache, &noted.keys);
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

/// Declares that entries of `cache` depend on rows of `source`. The caller owns the source and may
/// delete from the cache. The same again changes nothing.
pub fn declare(source: Oid, key_expression: Text, cache: &Cache) -> Result<(), Error> {
    let key = Expression::over(source, key_expression)?;
    let before = dependency::on_table(source);
    let number = free_number(&before);
    let table = relation::qualified(source);
    for (kind, events, level, row) in [
        ("insert", "AFTER INSERT", "ROW", Some(c"new")),
        ("change", "AFTER UPDATE OR DELETE", "ROW", Some(c"old")),
        ("truncate", "BEFORE TRUNCATE", "STATEMENT", None),
    ] {
        let name = format!("pgcache_depend_{number}_{kind}");
        let key = row.map_or(b"''".to_vec(), |row| key.print(row));
        let function = if row.is_some() {
            "invalidate"
        } else {
            "invalidate_all"
        };
        definition::run(&[
            format!("CREATE TRIGGER {name} {events} ON ").as_bytes(),
            table.as_bytes(),
            format!(" FOR EACH {level} WHEN (true OR pgcache.depends(").as_bytes(),
            definition::literal(cache.qualified_name()).as_slice(),
            b"::pg_catalog.regclass, ",
            &key,
            format!(")) EXECUTE FUNCTION pgcache.{function}()").as_bytes(),
        ]);
        definition::enable_always(&table, &name);
    }
    let (old, new): (Vec<_>, Vec<_>) = dependency::on_table(source)
        .into_iter()
        .partition(|found| before.iter().any(|former| former.trigger == found.trigger));
    for made in new {
        match old.iter().any(|former| former.equals(&made)) {
            true => drop_trigger(source, &made.name),
            false => dependency::goes_with(made.trigger, cache.relation),
        }
    }
    Ok(())
}

/// Removes all dependencies of `cache` on `source`; how many triggers there were.
pub fn remove_declared(source: Oid, cache: Oid) -> usize {
    let ours = |found: &dependency::Found| found.cache == cache && !found.is_clone;
    let triggers: Vec<_> = dependency::on_table(source)
        .into_iter()
        .filter(ours)
        .collect();
    for found in &triggers {
        drop_trigger(source, &found.name);
    }
    triggers.len()
}

fn drop_trigger(table: Oid, name: &[u8]) {
    definition::run(&[
        b"DROP TRIGGER ",
        name,
        b" ON ",
        relation::qualified(table).as_bytes(),
    ]);
}

/// The first number that no trigger of the table has in its name.
fn free_number(triggers: &[dependency::Found]) -> u32 {
    let taken = |number: u32| {
        let prefix = format!("pgcache_depend_{number}_").into_bytes();
        triggers.iter().any(|found| found.name.starts_with(&prefix))
    };
    (1..).find(|&number| !taken(number)).unwrap_or(u32::MAX)
}

/// Lets a cache be dropped without CASCADE although a restore has made its dependencies anew.
pub fn release(cache: Oid) {
    let triggers = query_once(
        c"SELECT d.objid FROM pg_catalog.pg_depend AS d \
          JOIN pg_catalog.pg_trigger AS t ON t.oid OPERATOR(pg_catalog.=) d.objid \
          WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass \
          AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
          AND d.refobjid OPERATOR(pg_catalog.=) $1 \
          AND t.tgfoid OPERATOR(pg_catalog.=) ANY (ARRAY[pg_catalog.to_regproc('pgcache.invalidate'), \
          pg_catalog.to_regproc('pgcache.invalidate_all')]::pg_catalog.oid[])",
        &[OIDOID],
        &[Some(Datum::from(cache))],
        |output| -> Vec<Oid> {
            (0..output.rows())
                .filter_map(|row| output.raw(row, 0))
                .map(|oid| Oid::from_u32(oid.value() as u32))
                .collect()
        },
    );
    for trigger in triggers {
        dependency::goes_with(trigger, cache);
    }
}
