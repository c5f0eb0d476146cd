//! Receives the events that `pg` reports (changed rows, DDL, ends of transactions and savepoints) and passes each to
//! the modules that act on it.
//!
//! `at_moment` is the complete list of the steps of a commit, in their order. A step that may fail comes before the
//! commit is visible; no step after it may fail.

use pgrx::PgLogLevel;
use pgrx::pg_sys::panic::ErrorReport;

use super::catalog::registry;
use super::commit::marks::Extent;
use super::commit::{changes, notify, publish, setup};
use super::definition::{declare, routed};
use super::distribute::two_phases;
use super::expiry::vacuum_need;
use super::memory::saved;
use super::model::expiring::Expiring;
use super::model::pending;
use super::open::{again, removal};
use super::tier::slot_shares;
use crate::cache::lease::{held, undo_marks, unverified_after_restart};
use crate::cache::table::replace_expired;
use crate::pg::events::{self, Moment, Observer, Phase, RowChange};
use crate::pg::hooks::{applied, callbacks, pre_commit_portal, source};
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::pause::{self, Window};
use crate::pg::shmem::entry_size;
use crate::pg::shmem::tier::tier;
use crate::pg::table::probe;

/// Registers this module for events; called when the library is loaded.
pub fn register() {
    callbacks::register(Observer {
        row: |relation, key, change, noted_by| {
            let expired = change == RowChange::Gone && Expiring::removes(relation, noted_by);
            match expired {
                true => notify::note_expired(relation, key),
                false => notify::note(relation, key, change),
            }
            changes::note_row(relation, key, !expired);
        },
        stored: changes::offer,
        writing: replace_expired::renew,
        copying: probe::begin,
        copied: probe::end,
        held_back: replace_expired::insert_held_back,
        died: vacuum_need::note_dead,
        truncated: |relation| {
            notify::note_clear(relation);
            if !fault::on(Fault::TruncateNotNoted) {
                changes::note_table(relation, Extent::Rows);
            }
        },
        depended_on: |cache, key| {
            pending::note(cache, key);
            pre_commit_portal::request();
            remove_at_once_if_committing();
        },
        depended_on_all: |cache| {
            pending::note_all(cache);
            pre_commit_portal::request();
            remove_at_once_if_committing();
        },
        inherited: |child, parent| {
            pending::note_child(child, parent);
            pre_commit_portal::request();
        },
        placed: |cache| {
            pending::note_placed(cache);
            pre_commit_portal::request();
        },
        altered: |relation| {
            slot_shares::note_altered(relation);
            if !fault::on(Fault::DefinitionNotNoted) {
                changes::note_table(relation, Extent::Definition);
            }
        },
        created: changes::note_created,
        dropped: changes::note_dropped,
        database_dropped: changes::note_database_dropped,
        transaction: at_moment,
        started: saved::restore,
        stopped: || {
            if let Some(tier) = tier() {
                entry_size::remember(&tier.region().stats());
            }
            saved::save();
        },
    });
}

/// Removes dependent entries at once if the commit has begun, because the step that removes them has already run. This
/// happens if a trigger that the commit itself fires changes rows on which entries depend.
fn remove_at_once_if_committing() {
    if events::phase() == Phase::Committing {
        remove_dependents();
    }
}

/// Removes entries that depend on changed sources. First restores the triggers of sources and creates the triggers of
/// new children: the children's tables may hold rows that no trigger has noted and that readers of the source now see.
fn remove_dependents() {
    again::look_again();
    applied::see_truncated();
    declare::enable_always();
    declare::follow_children();
    routed::follow();
    removal::at_commit();
}

/// Removes the same entries as [`remove_dependents`], but earlier, while user-defined code may still run. Does so only
/// if the removal runs user-defined code, and repeats the removal until that code notes nothing more to remove.
fn remove_dependents_early() {
    again::look_again();
    applied::see_truncated();
    while source::has_altered() || pending::has_children() || removal::runs_user_code() {
        pending::note_end();
        // If nothing is noted, a PREPARE may continue. Postgres must then refuse cursors WITH HOLD itself.
        if pending::has_noted() {
            pre_commit_portal::close_cursors();
        }
        declare::enable_always();
        declare::follow_children();
        routed::follow();
        removal::at_end();
    }
}

/// Runs the steps of a commit, and of every other end of a transaction or savepoint, in their order.
fn at_moment(moment: Moment) {
    match moment {
        Moment::Ending => remove_dependents_early(),
        // Each step can fail, and the transaction then aborts. Steps that remove entries come before the marks,
        // because a mark covers only changes that are known when it is set.
        Moment::BeforeCommit => {
            remove_dependents();
            two_phases::at_commit();
            notify::at_commit();
            setup::at_commit();
            slot_shares::before_commit(registry::settings_of);
            if !fault::on(Fault::MarkedAfterCommit) {
                changes::mark();
            }
            if fault::on(Fault::UnmarkedBeforeVisible) {
                changes::unmark(true);
            }
            pause::at(Window::MarkToVisible);
        }
        // The steps of a commit that a prepared transaction needs. The marks move to a record. Postgres itself refuses
        // to prepare a transaction with pending notifications.
        Moment::BeforePrepare => {
            remove_dependents();
            notify::at_commit();
            setup::at_commit();
            changes::prepare();
            pause::at(Window::MarkToVisible);
            if let Err(error) = publish::refuse_to_prepare() {
                ErrorReport::from(error).report(PgLogLevel::ERROR);
            }
        }
        // The record holds the remaining work of the transaction. The session ends its own part.
        Moment::Prepared => {
            pending::forget();
            notify::forget();
            setup::forget();
            changes::forget();
            publish::forget();
            slot_shares::forget();
            two_phases::forget();
            held::end(true);
        }
        Moment::PreparedEnded => {
            undo_marks::lower_decided();
            undo_marks::wait_for_others();
            unverified_after_restart::prove_all();
        }
        // No step here may fail, because the commit is visible.
        Moment::Committed => {
            pending::forget();
            notify::forget();
            setup::forget();
            pause::at(Window::VisibleToUnmark);
            if fault::on(Fault::MarkedAfterCommit) {
                changes::mark();
            }
            changes::unmark(true);
            slot_shares::committed();
            // Sent after the marks are undone, so that a subscriber finds no older entry.
            publish::send();
            two_phases::forget();
            held::end(true);
        }
        Moment::Aborted => {
            two_phases::forget();
            pending::forget();
            notify::forget();
            setup::forget();
            slot_shares::forget();
            changes::unmark(false);
            if fault::on(Fault::SentOnRollback) {
                publish::send();
            }
            publish::forget();
            held::end(false);
        }
        Moment::SubCommitted { level } => {
            pending::release_savepoint(level);
            notify::release_savepoint(level);
            publish::release_savepoint(level);
            changes::release_savepoint(level);
            held::release_savepoint(level);
        }
        Moment::SubAborted { level } => {
            pending::roll_back_savepoint(level);
            notify::roll_back_savepoint(level);
            publish::roll_back_savepoint(level);
            changes::roll_back_savepoint(level);
            held::roll_back_savepoint(level);
        }
    }
}
