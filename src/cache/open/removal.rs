//! Removes entries that depend on rows that this transaction has changed (`model::pending` keeps the list).
//!
//! The removal runs right before the commit, for two reasons. First, another session may compute an entry from the old
//! row at any time before the commit, and that entry must be removed, too. Second, the locks on entries are held only
//! for a short time. In the session that has changed the rows, a call that opens a cache removes the entries earlier,
//! so that it finds no entry computed from an old row.
//!
//! The fences on entries of memory caches stay until the commit is visible, so that no session stores an entry that it
//! has computed from an old row.

use std::rc::Rc;

use pgrx::PgLogLevel;
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;

use crate::cache::catalog::registry::{self, Cache, Storage};
use crate::cache::commit::{changes, notify};
use crate::cache::lease::{acquire, held, unverified_after_restart};
use crate::cache::model::key_set::Keys;
use crate::cache::model::pending::{self, Noted};
use crate::cache::table::remove_many;
use crate::error::Error;
use crate::pg::catalog::privilege::AsOwner;
use crate::pg::catalog::{inheritance, relation};
use crate::pg::events::RowChange;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::pause::{self, Window};
use crate::pg::session::{self, lock, transaction};
use crate::pg::shmem::tier::tier;

/// Removes entries that depend on rows that this transaction has changed, before the session itself reads a cache. A
/// parallel query cannot remove entries; its reads check `pending::is_due` instead.
pub fn settle() {
    while pending::is_unsettled() {
        if session::in_parallel_mode() {
            return pending::look_behind();
        }
        remove(When::Now);
    }
}

/// Removes all dependent entries right before the commit. Repeats the removal until it notes no further entries.
pub fn at_commit() {
    while pending::is_left_to_commit() {
        remove(When::Commit);
    }
}

/// Removes all dependent entries at the last point where user-defined code may run.
pub fn at_end() {
    while pending::is_left_to_commit() {
        remove(When::Ending);
    }
}

/// Returns whether the removal would run user-defined triggers or policies. Checks this under locks that are kept
/// until the commit, so that no other session can add a trigger or policy afterwards.
pub fn runs_user_code() -> bool {
    let mut caches = pending::caches()
        .into_iter()
        .filter_map(|(relation, clears)| open(Oid::from_u32(relation), clears));
    caches.any(|cache| !cache.changes_alone())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// A removal after which the transaction may run more statements.
    Now,
    /// A removal after which only deferred triggers may run.
    Ending,
    Commit,
}

impl When {
    fn is_last(self) -> bool {
        self != When::Now
    }
}

/// Removes all noted entries. Tables come first: if a later table failed, the entries of a memory cache would not come
/// back, because the fences of a memory cache stay until the commit is visible.
fn remove(when: When) {
    pending::begin_removal();
    let _writable = transaction::Writable::enter();
    let _snapshot = transaction::Snapshot::enter();
    let mut in_memory = Vec::new();
    let all = match when {
        When::Now => pending::noted(),
        When::Ending | When::Commit => pending::take_noted(),
    };
    for (&relation, noted) in all.iter() {
        changes::note_outdated(Oid::from_u32(relation));
        let clears = noted.all && when.is_last();
        let Some(cache) = open(Oid::from_u32(relation), clears) else {
            continue;
        };
        match cache.storage {
            Storage::Memory => in_memory.push((cache.relation, noted)),
            // The table got its triggers or policies after the step that may run them, or the user has closed the
            // cursor that runs that step.
            _ if when == When::Commit && !cache.changes_alone() => refuse(&cache),
            _ => delete(&cache, noted, when),
        }
    }
    if when.is_last() {
        // The removals from tables have run triggers, which may have dropped the view or created another view with its
        // name.
        for (relation, noted) in in_memory {
            if let Ok(cache) = registry::find(relation) {
                fence(&cache, noted);
            }
        }
    }
    pending::end_removal();
}

/// Opens a cache for removal. Returns None if the relation was dropped or is no longer a cache, and so has no entries.
/// To clear a table, takes the ACCESS EXCLUSIVE lock at once: two transactions that upgraded from a weaker lock would
/// deadlock. Looks the cache up again under the lock, because a trigger or a foreign key may have been added to the
/// table.
fn open(relation: Oid, clears: bool) -> Option<Rc<Cache>> {
    let mode = match (find(relation)?.storage, clears) {
        (Storage::Memory, _) => lock::Mode::Read,
        (_, true) => lock::Mode::Remove,
        (_, false) => lock::Mode::Write,
    };
    if clears && mode == lock::Mode::Remove && tier().is_none() {
        // Take this lock before the table's lock. A loading session holds this lock and no lock on the table yet, so it
        // would wait for the table's lock while this session waits for it.
        acquire::keep_loaders_out(&*find(relation)?, None);
    }
    lock::relation(relation, mode);
    find(relation)
}

/// Returns the cache; None if the relation is not a cache. Raises 42809 for a cache whose entries are on Citus shards,
/// because those entries would outlive the change.
fn find(relation: Oid) -> Option<Rc<Cache>> {
    match registry::find(relation) {
        Err(Error::Distributed(name) | Error::OverShards(name)) => {
            ErrorReport::from(Error::Distributed(name)).report(PgLogLevel::ERROR);
            None
        }
        found => found.ok(),
    }
}

/// Raises 0A000 for a table whose triggers or policies can no longer run in this commit.
fn refuse(cache: &Cache) {
    let name = relation::display_name(cache.relation);
    ErrorReport::from(Error::TooLateForTriggers(name)).report(PgLogLevel::ERROR);
}

fn delete(cache: &Cache, noted: &Noted, when: When) {
    let _owner = AsOwner::to_remove(cache.relation);
    if noted.all {
        match when {
            When::Now => remove_many::delete_all(cache),
            When::Ending | When::Commit => clear(cache),
        }
        return;
    }
    if when.is_last() {
        keep_loaded_out(cache, &noted.keys);
    }
    remove_many::delete_keys(cache, &noted.keys);
}

/// Clears a table with TRUNCATE, which notifies dependent caches even if the table is empty. Caches that depend on
/// each other would clear each other endlessly, so a second TRUNCATE runs only if the table contains rows again.
fn clear(cache: &Cache) {
    if !pending::note_cleared(cache.relation) || inheritance::has_content(cache.relation) {
        remove_many::truncate(cache);
    }
}

/// Marks keys and waits, so that until this commit is visible no session stores a value that it loaded earlier for
/// these keys. The marks come first, so the removal sees the values that other sessions have already stored. Keys
/// without an entry are marked, too, because a session may be computing an entry from the old row.
fn keep_loaded_out(cache: &Cache, keys: &Keys) {
    changes::note_keys(cache.relation, keys);
    match tier() {
        Some(tier) => {
            if !fault::on(Fault::RemovedBeforeMark) {
                changes::mark_early();
            }
            pause::at(Window::MarkToRemove);
            // A transaction that was prepared before the server's start no longer counts as a store, so the removal
            // also waits if the cache is unverified.
            if fault::on(Fault::RemovalDoesNotWait) {
                return;
            }
            if held::has_open_stores(tier, cache.id)
                || !unverified_after_restart::is_cache_proven(tier, cache)
            {
                remove_many::wait_for_unseen(cache, keys);
            }
        }
        None => {
            acquire::keep_loaders_out(cache, Some(keys));
            // A prepared loader no longer holds the lock of its key.
            if lock::is_touched(cache.relation) {
                remove_many::wait_for_unseen(cache, keys);
            }
        }
    }
}

fn fence(cache: &Cache, noted: &Noted) {
    let Some(tier) = tier() else {
        return; // without a tier the cache has no entries
    };
    let Some(slot) = cache.slot_or_new(tier) else {
        return; // the tier has no room for the cache, so the cache has no entries
    };
    match noted.all {
        true => {
            notify::note_clear(cache.relation);
            changes::fence_all(tier, slot, cache.id);
        }
        false => {
            for key in noted.keys.iter() {
                notify::note(cache.relation, key, RowChange::Gone);
            }
            changes::fence(tier, slot, cache.id, noted.keys.iter());
        }
    }
}
