//! Records the changes of a transaction and applies them to the hot tier: marks before the commit, unmarks after it.
//! docs/internals/coherence.md explains why this keeps copies coherent.
//!
//! - **Record**: before a statement ends, the key of every changed row goes to the ledger's `keys`, and every table
//!   that changed as a whole goes to its `tables`.
//! - **Mark** (before the commit): for a key, the entry is removed, a mark is set on its hash, and the `epoch` of its
//!   stripe rises. For a whole cache, `pending_writers` rises and the version changes. Once the mark is set, no session
//!   fills in a copy of an old row.
//! - **Unmark** (after commit or abort): for a key, `epoch` rises again and the mark is lowered. For a whole cache, the
//!   version changes before `pending_writers` falls.
//! - **Prepare**: everything is marked as for a commit, and the list of marks to undo moves to a record in shared
//!   memory (`prepare`), because another session decides the transaction.
//!
//! Recording and marking may raise an error. The transaction then aborts, and its end undoes the marks that are set.
//! Unmarking raises no error and allocates nothing: it only takes locks of the tier, one at a time.

use pgrx::pg_sys::Oid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use super::at_end::free_slots;
use super::deletions::SecondLook;
use super::ledger::Transaction;
use super::marks::Extent;
use super::prepare;
use super::watched;
use crate::cache::commit::invalidated_keys::MAX_KEYS;
use crate::cache::lease::held;
use crate::cache::model::key;
use crate::cache::model::key_set::Keys;
use crate::pg::catalog::relation;
use crate::pg::events::{self, Copied, Phase};
use crate::pg::memory;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::session::{lock, transaction};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::tier::{Tier, tier};

thread_local! {
    static TRANSACTION: TransactionLocal<Transaction> = TransactionLocal::default();
}

fn with<R>(change: impl FnOnce(&mut Transaction) -> R) -> R {
    TRANSACTION.with(|transaction| transaction.change(change))
}

/// Notes a key whose row has changed, whose row a deletion has not found, or whose entry becomes outdated when this
/// transaction commits.
pub fn note_key(relation: Oid, key: &[u8]) {
    note_row(relation, key, true);
}

/// Notes a key as [`note_key`] does. `voids_lease` is true if the change voids a lease on the key; an expiry does not.
pub fn note_row(relation: Oid, key: &[u8], voids_lease: bool) {
    with(|transaction| {
        transaction.touch(relation);
        if key.len() > key::MAX_BYTES {
            return; // plain SQL may write this key, but no copy, lease or call can have it
        }
        let Some(tier) = tier() else {
            return;
        };
        if events::is_late() {
            if relation::is_temporary(relation) {
                return;
            }
            memory::push(&mut transaction.late, relation.to_u32());
            if fault::on(Fault::LateWriteNotMarked) {
                return;
            }
            transaction.withdraw(relation.to_u32(), key);
            return transaction.marks.keys(
                tier,
                relation.to_u32(),
                [(key, voids_lease)].into_iter(),
            );
        }
        transaction.note_key(tier, relation.to_u32(), key, voids_lease, false);
    });
    hand_over_if_preparing();
}

/// Notes the deletion of a key; called before the caller checks for the row. [`second_looks`] returns the key if a row
/// may have been stored after the caller's check.
pub fn note_deletion(relation: Oid, key: &[u8]) {
    note_outdated(relation);
    let noted = with(|transaction| match tier() {
        Some(tier) if !events::is_late() && key.len() <= key::MAX_BYTES => {
            let see = || tier.stores(CacheId::of(relation)).see();
            transaction.deletions.note(relation.to_u32(), see);
            transaction.note_key(tier, relation.to_u32(), key, true, true);
            true
        }
        _ => false,
    });
    match noted {
        true => hand_over_if_preparing(),
        false => note_key(relation, key),
    }
}

/// Marks everything noted so far. Returns the deleted keys and prefixes that need a second check, because rows may have
/// been stored since the first check. Once the marks are set, a new row can only come from a session that was already
/// writing it.
pub fn second_looks() -> Vec<SecondLook> {
    let Some(tier) = tier() else {
        return Vec::new();
    };
    if TRANSACTION.with(|t| t.look(|t| t.deletions.is_empty())) {
        return Vec::new();
    }
    mark_early();
    with(|t| {
        t.deletions.take(|relation, seen| {
            let cache = CacheId::of(Oid::from_u32(relation));
            tier.stores(cache).none_since(seen)
        })
    })
}

/// Offers the contents of a row that was just written; the commit publishes them as the row's copy.
pub fn offer(copied: Copied) {
    if !events::is_late() {
        with(|transaction| transaction.offers.add(copied));
    }
}

/// Notes that the rows of many keys have changed, as [`note_key`] does for one key.
pub fn note_keys(relation: Oid, keys: &Keys) {
    if keys.len() > MAX_KEYS {
        with(|transaction| transaction.note_change(relation, Extent::Rows));
        return hand_over_if_preparing();
    }
    for key in keys.iter() {
        note_key(relation, key);
    }
}

/// Notes the removal of many rows whose keys are not known, which voids all leases of the cache. Called before the
/// caller searches for the rows, with the prefix of their keys, so that a second check finds rows that are stored
/// later. Skips a temporary table, which has no lease, no copy and no slot.
pub fn note_removal(relation: Oid, prefix: &[u8]) {
    if relation::is_temporary(relation) {
        return;
    }
    let cache = CacheId::of(relation);
    note_outdated(relation);
    with(|transaction| match tier() {
        Some(tier) if events::is_late() => {
            transaction.marks.removal(tier, cache);
        }
        tier => {
            if let Some(tier) = tier {
                let see = || tier.stores(cache).see();
                let deletions = &mut transaction.deletions;
                deletions.note(relation.to_u32(), see);
                deletions.delete_prefix(relation.to_u32(), prefix);
            }
            if !transaction.removals.contains(&cache) {
                memory::push(&mut transaction.removals, cache);
            }
        }
    });
}

/// Removes entries of a memory cache, and keeps other sessions from storing new ones until the transaction has ended.
pub fn fence<'k>(tier: &Tier, slot: u32, cache: CacheId, keys: impl Iterator<Item = &'k [u8]>) {
    with(|transaction| transaction.marks.fence(tier, slot, cache, keys));
}

/// Removes all entries of a memory cache, and keeps other sessions from storing new ones until the transaction has
/// ended.
pub fn fence_all(tier: &Tier, slot: u32, cache: CacheId) {
    with(|transaction| transaction.marks.fence_all(tier, slot, cache));
}

/// Notes that the commit of this transaction removes entries of this cache because their source changes.
pub fn note_outdated(relation: Oid) {
    with(|transaction| {
        transaction.touch(relation);
        transaction.outdated.insert(CacheId::of(relation));
    });
}

/// Marks everything noted so far, while the commit still has to remove rows. A transaction that removes a row marks the
/// key and then reads the row; a session that stores a row writes it and then checks the mark. So the remover sees the
/// row, or the session that stores sees the mark.
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

/// Moves the marks of a new change to the record at once during PREPARE TRANSACTION. Another extension's callback that
/// runs after pgcache's callback can make such a change; it is already marked.
fn hand_over_if_preparing() {
    if events::phase() == Phase::Preparing {
        prepare();
    }
}

/// Marks everything noted, before PREPARE TRANSACTION, and moves the marks to a record. Does nothing if the server
/// allows no prepared transactions: Postgres then raises its own error. Raises 53400 if the record has no room, and
/// the errors of locks.
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
    let nothing_to_undo = marks();
    wait_for_watchers();
    if nothing_to_undo {
        return;
    }
    let record = TRANSACTION.with(|t| t.look(|t| t.record));
    let handed = record
        .map_or_else(|| prepare::make_record(tier), Ok)
        .and_then(|record| {
            with(|t| {
                t.record = Some(record);
                if fault::on(Fault::PrepareForgetsMarks) {
                    std::mem::take(&mut t.marks).undo(tier, true);
                }
                let caches = touched.iter().map(|&(relation, _)| relation);
                let caches = caches.map(|relation| CacheId::of(Oid::from_u32(relation)));
                t.marks.hand_over(tier, record, caches)
            })
        });
    if let Err(error) = handed {
        ErrorReport::from(error).report(PgLogLevel::ERROR);
    }
    // Now the marks keep other sessions from taking a lease.
    held::give_up();
}

/// Drops the ledger after the transaction is prepared: its record owns all marks.
pub fn forget() {
    with(|t| drop(std::mem::take(t)));
}

pub fn note_created(relation: Oid) {
    with(|t| {
        t.new_files = true;
        memory::push(&mut t.relations_here().created, relation);
    });
    hand_over_if_preparing();
}

pub fn note_dropped(relation: Oid) {
    with(|t| memory::push(&mut t.relations_here().dropped, relation));
    note_table(relation, Extent::Definition);
}

pub fn note_database_dropped(database: Oid) {
    with(|t| t.databases.push(database));
}

/// Marks everything noted, right before the commit.
pub fn mark() {
    with(|t| {
        t.mark();
        t.announce();
        if fault::on(Fault::InvalidatedBeforeVisible)
            && let Some(tier) = tier()
        {
            t.invalidate(tier);
        }
    });
    wait_for_watchers();
}

/// Waits for each EXEC that holds a lock on a marked key because its client watches the key and the key has no entry.
fn wait_for_watchers() {
    if !watched::is_anything_held() || fault::on(Fault::WatchedAbsentNotHeld) {
        return;
    }
    // No borrow is held while waiting for the lock, because an error may end the wait.
    for (relation, keys) in with(|t| t.marked_names()) {
        watched::wait_for(Oid::from_u32(relation), keys.as_deref());
    }
}

/// Undoes the marks, after the commit is visible or the transaction is rolled back.
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

/// Merges the changes of a released savepoint into its parent.
pub fn release_savepoint(level: i32) {
    with(|t| {
        t.relations.release(level);
        t.deletions.release(level);
        for (relation, key) in t.open.release(level) {
            t.stand(relation, key.as_deref());
        }
    });
}

/// Discards the changes of a savepoint that was rolled back.
pub fn roll_back_savepoint(level: i32) {
    let rolled_back = with(|t| {
        t.open.roll_back(level);
        if fault::on(Fault::SavepointForgetsNotes) {
            t.keys.clear();
        }
        if !fault::on(Fault::SavepointKeepsOffers) {
            t.offers.withdraw_all();
            t.marks.offers.withdraw_all();
        }
        t.deletions.roll_back(level);
        t.relations.roll_back(level)
    });
    free_slots(rolled_back.created);
    flush_abort_of(with(|t| t.new_files));
}

/// Flushes the abort record of a transaction with new files, while the files still exist.
fn flush_abort_of(new_files: bool) {
    if new_files && !fault::on(Fault::AbortNotFlushed) {
        transaction::flush_abort();
    }
}
