//! Removing what depends on rows that this transaction has changed (`model::pending` says what that is).
//!
//! Done right before the commit: so late because an entry that another session stored since the change was computed
//! from the old row, too; and it keeps the locks on entries short. In the changing session itself a call that opens a
//! cache removes them earlier, so that it finds what a table shows it: nothing of an old row.
//!
//! Guards that entries of a memory cache are fenced off until the commit is visible.

use std::rc::Rc;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Cache, Storage};
use crate::cache::commit::{changes, notify};
use crate::cache::lease::leases;
use crate::cache::model::key_set::Keys;
use crate::cache::model::pending::{self, Noted};
use crate::cache::table::ops as table;
use crate::pg::catalog::privilege::AsOwner;
use crate::pg::events::Change;
use crate::pg::session::pause::{self, Window};
use crate::pg::session::{self, lock, transaction};
use crate::pg::shmem::tier::tier;

/// Removes what depends on rows that this transaction has changed, before it looks at a cache itself. A
/// parallel query cannot: what it reads is asked for with `pending::is_due`.
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// While statements of the transaction may still come.
    Now,
    Commit,
}

/// Tables first: a memory cache's entries do not come back if that fails, and its fences stand until the
/// commit is visible.
fn remove(when: When) {
    pending::begin_removal();
    let _writable = transaction::Writable::enter();
    let _snapshot = transaction::Snapshot::enter();
    let mut in_memory = Vec::new();
    let all = match when {
        When::Now => pending::noted(),
        When::Commit => pending::take_noted(),
    };
    for (&relation, noted) in all.iter() {
        changes::note_outdated(Oid::from_u32(relation));
        let clears = noted.all && when == When::Commit;
        let Some(cache) = open(Oid::from_u32(relation), clears) else {
            continue;
        };
        match cache.storage {
            Storage::Memory => in_memory.push((cache.relation, noted)),
            _ => delete(&cache, noted, when),
        }
    }
    if when == When::Commit {
        // Triggers have run since; one may have dropped the view, or made another of the name.
        for (relation, noted) in in_memory {
            if let Ok(cache) = registry::find(relation) {
                fence(&cache, noted);
            }
        }
    }
    pending::end_removal();
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

fn delete(cache: &Cache, noted: &Noted, when: When) {
    let _owner = AsOwner::to_maintain(cache.relation);
    if noted.all {
        match when {
            When::Now => table::delete_all(cache),
            When::Commit => table::truncate(cache),
        }
        return;
    }
    if when == When::Commit {
        keep_loaded_out(cache, &noted.keys);
    }
    table::delete_keys(cache, &noted.keys);
}

/// From here on nobody stores under these keys what he has loaded before our commit is visible, and what
/// others have stored already can be seen by who removes it. So the marks come first. Also of keys that have no
/// entry: somebody may be computing one from the old row.
fn keep_loaded_out(cache: &Cache, keys: &Keys) {
    changes::note_keys(cache.relation, keys);
    match tier() {
        Some(tier) => {
            changes::mark_early();
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
    let Some(slot) = cache.slot_or_new(tier) else {
        return; // no room for a cache, no entries
    };
    match noted.all {
        true => {
            notify::note_clear(cache.relation);
            changes::fence_all(tier, slot, cache.owner);
        }
        false => {
            for key in noted.keys.iter() {
                notify::note(cache.relation, key, Change::Gone);
            }
            changes::fence(tier, slot, cache.owner, noted.keys.iter());
        }
    }
}
