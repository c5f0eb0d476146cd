//! Removing what depends on rows that this transaction has changed (`model::pending` says what that
//! is).
//!
//! Done right before the commit: so late because an entry that another session stored since the
//! change was computed from the old row, too; and it keeps the locks on entries short. In the
//! changing session itself a call that opens a cache removes them earlier, so that it finds what a
//! table shows it: nothing of an old row.
//!
//! Guards that entries of a memory cache are fenced off until the commit is visible.

use std::rc::Rc;

use pgrx::PgLogLevel;
use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;

use crate::cache::catalog::registry::{self, Cache, Storage};
use crate::cache::commit::{changes, notify};
use crate::cache::lease::{ask, held, unverified_after_restart};
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

/// Removes what depends on rows that this transaction has changed, before it looks at a cache
/// itself. A parallel query cannot: what it reads is asked for with `pending::is_due`.
pub fn settle() {
    while pending::is_unsettled() {
        if session::in_parallel_mode() {
            return pending::look_behind();
        }
        remove(When::Now);
    }
}

/// Right before the commit: all of it, once more, and until removing notes nothing new.
pub fn at_commit() {
    while pending::is_left_to_commit() {
        remove(When::Commit);
    }
}

/// The same where user-defined code may run for the last time.
pub fn at_end() {
    while pending::is_left_to_commit() {
        remove(When::Ending);
    }
}

/// Whether triggers of others would run, or policies. Asked under the locks that are kept until the commit: nobody else
/// gives a cache one after that.
pub fn runs_user_code() -> bool {
    let mut caches = pending::caches()
        .into_iter()
        .filter_map(|(relation, clears)| open(Oid::from_u32(relation), clears));
    caches.any(|cache| !cache.changes_alone())
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

/// Tables first: a memory cache's entries do not come back if that fails, and its fences stand
/// until the commit is visible.
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
    pending::end_removal();
}

/// A relation that is gone meanwhile, or no cache any more, has no entries. A table gets the lock
/// that it will be changed under at once: two transactions that both `clear` it, and hold a weaker
/// one before, would wait for each other. What it was before the lock is no help: it may have a
/// trigger or a foreign key by now.
fn open(relation: Oid, clears: bool) -> Option<Rc<Cache>> {
    let mode = match (find(relation)?.storage, clears) {
        (Storage::Memory, _) => lock::Mode::Read,
        (_, true) => lock::Mode::Remove,
        (_, false) => lock::Mode::Write,
    };
    if clears && mode == lock::Mode::Remove && tier().is_none() {
        // Before the table: who loads holds no lock on it yet, and would wait for ours.
        ask::keep_loaders_out(&*find(relation)?, None);
    }
    lock::relation(relation, mode);
    find(relation)
}

/// None for what is no cache. Raises 42809 for one whose entries are on Citus' shards: they would
/// outlive the change.
fn find(relation: Oid) -> Option<Rc<Cache>> {
    match registry::find(relation) {
        Err(Error::Distributed(name) | Error::OverShards(name)) => {
            ErrorReport::from(Error::Distributed(name)).report(PgLogLevel::ERROR);
            None
        }
        found => found.ok(),
    }
}

/// Raises 0A000.
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

/// A TRUNCATE is told to whoever depends on the cache, also one of an empty table. Caches that depend on each other
/// would clear each other without an end, so the second time it is done only for rows that have come since.
fn clear(cache: &Cache) {
    if !pending::note_cleared(cache.relation) || inheritance::has_content(cache.relation) {
        remove_many::truncate(cache);
    }
}

/// From here on nobody stores under these keys what they have loaded before our commit is visible;
/// and what others have stored already can be seen by whoever removes it, because the marks come
/// first. Keys without an entry are marked, too: somebody may be computing one from the old row.
fn keep_loaded_out(cache: &Cache, keys: &Keys) {
    changes::note_keys(cache.relation, keys);
    match tier() {
        Some(tier) => {
            if !fault::on(Fault::RemovedBeforeMark) {
                changes::mark_early();
            }
            pause::at(Window::MarkToRemove);
            // A transaction that was prepared before the server's start is counted no more.
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
            ask::keep_loaders_out(cache, Some(keys));
            // A loader that is prepared has no lock any more.
            if lock::is_touched(cache.relation) {
                remove_many::wait_for_unseen(cache, keys);
            }
        }
    }
}

fn fence(cache: &Cache, noted: &Noted) {
    let Some(tier) = tier() else {
        return; // no tier, no entries
    };
    let Some(slot) = cache.slot_or_new(tier) else {
        return; // no room for a cache, no entries
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
