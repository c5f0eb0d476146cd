//! Tests redundant clauses. Without the redundant clause no promise breaks; without both that clause and the clause
//! that covers it, a promise breaks.
//!
//! An implementation may omit these clauses, or keep them as a second safeguard. The server keeps the clauses that cost
//! nothing in a hot get.

use pgcache_coherence::hot_tier::clause::Clause::{self, *};
use pgcache_coherence::hot_tier::configurations as with;
use pgcache_coherence::hot_tier::model::Model;
use pgcache_coherence::search::{counterexample, explore};

use crate::check::run_without;

fn without(m: Model, clauses: &[Clause]) -> Model {
    clauses.iter().fold(m, |m, clause| m.without(*clause))
}

/// Checks that these models break no promise without these clauses, in whichever order a read takes a slot's two groups
/// of words.
fn spared(clauses: &[Clause], models: &[Model]) {
    for m in models {
        for epochs_first in [false, true] {
            let m = without(
                Model {
                    epochs_first,
                    ..m.clone()
                },
                clauses,
            );
            if explore(&m, usize::MAX).violation.is_some() {
                panic!(
                    "without {clauses:?}, {}",
                    counterexample(&m).expect("explore found one")
                );
            }
        }
    }
}

fn caught(clauses: &[Clause], m: Model) {
    run_without(&without(m, clauses), clauses);
}

/// A hot get need not read `pending_writers`: the mark raises `epoch` before the commit is visible, and no fill stores
/// an entry of the new epoch until `pending_writers` is 0 again.
#[test]
fn lookup_cache_pend_is_covered_by_the_fill() {
    let models = [
        with::overflow(),
        with::late_after_overflow(),
        with::truncate(),
        with::truncate_repeatable(),
    ];
    spared(&[LookupCachePend], &models);
    caught(
        &[FillCachePend],
        Model {
            epochs_first: true,
            ..with::overflow()
        },
    );
    caught(&[LookupCachePend, FillCachePend], with::overflow());
}

/// A hot get need not read `suspended` either: a publish during a suspension stores no entry, and neither does a fill.
/// The control leaves out only the publish's check.
#[test]
fn lookup_suspended_is_covered_by_fill_and_publish() {
    let models = [
        with::set_while_suspended(),
        with::restore(),
        with::suspension(),
    ];
    spared(&[LookupSuspended, LookupCachePend], &models);
    spared(&[PublishSuspended], &models);
    caught(
        &[LookupSuspended, PublishSuspended],
        with::set_while_suspended(),
    );
}

/// A fill needs only one of the two increments of `ver`, because between them it finds the mark. A publish checks
/// neither.
#[test]
fn mark_and_unmark_cover_the_ver_of_each_other() {
    let models = [
        with::deletes(),
        with::late(),
        with::late_neighbour(),
        with::savepoint(),
        with::no_place(),
        with::no_place_late(),
    ];
    spared(&[MarkBumpsVer], &models);
    spared(&[UnmarkBumpsVer], &models);
    caught(&[MarkBumpsVer, UnmarkBumpsVer], with::deletes());
}

/// A writer with a dirty key holds the lock, unless a savepoint's rollback has undone both the lock and the change.
#[test]
fn dirty_key_bypasses_is_covered_by_the_lock() {
    spared(
        &[DirtyKeyBypasses],
        &[
            with::plain_sql(),
            with::savepoint(),
            with::truncate(),
            with::overflow(),
        ],
    );
    caught(&[DirtyKeyBypasses, LockedCacheBypasses], with::savepoint());
}

/// A slot that was created after the mark was not yet verified when the key was marked.
#[test]
fn publish_generation_is_covered_by_the_proof() {
    let models = [
        with::table_full_late(),
        with::first_get(),
        with::drop_create(),
        with::drop_under_mark(),
    ];
    spared(&[PublishGeneration], &models);
    caught(&[PublishGeneration, PublishProven], with::table_full_late());
}
