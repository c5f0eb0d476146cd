//! Tests the model of leases: with all clauses it keeps its promises, and leaving out any one clause breaks a promise.

use pgcache_coherence::lease::Actor::{self, Deleter, Fetcher, Neighbour, Writer};
use pgcache_coherence::lease::Clause;
use pgcache_coherence::lease::FetcherKind::{self, *};
use pgcache_coherence::lease::Violation::{self, PaysForAnother, StaleForGood};
use pgcache_coherence::lease::{MarkScope, Model, all};

use crate::check::{all_hold, breaks};

const LONGEST: usize = 30;

#[test]
fn with_every_clause_the_entry_equals_the_source_or_is_gone() {
    all_hold(&all());
}

fn caught(clause: Clause, promise: Violation, actor: Actor, kinds: &[FetcherKind]) {
    for kind in kinds {
        let m = control(&[actor, Fetcher(*kind)]).without(clause);
        breaks(&m, clause, promise, LONGEST);
    }
}

fn control(actors: &[Actor]) -> Model {
    Model::new("control", actors)
}

/// Leaves out all clauses that connect marks and leases. A fetcher then wins a lease after the mark, and the value that
/// it stores under the lease stays for good.
#[test]
fn without_all_of_them_a_lease_is_won_between_mark_and_unmark() {
    for kind in [Leased, Client, Untracked, RepeatableRead] {
        for scope in [MarkScope::Key, MarkScope::Cache, MarkScope::NoSlot] {
            let m = control(&[Writer(scope), Fetcher(kind)]);
            let m = Clause::ALL.iter().fold(m, |m, clause| m.without(*clause));
            breaks(&m, "any clause", StaleForGood, LONGEST);
        }
    }
}

caught_without! {
    caught, &[];
    check_mark: CheckMark, StaleForGood, Writer(MarkScope::Key), &[Leased, Client, Untracked];
    marks_by_key: MarksByKey, PaysForAnother, Neighbour(MarkScope::Key), &[Leased, Client, Untracked];
    check_cache_pend: CheckCachePend, StaleForGood, Writer(MarkScope::Cache), &[Leased, Client, Untracked];
    check_lock: CheckLock, StaleForGood, Writer(MarkScope::NoSlot), &[Leased, Client, Untracked];
    check_lock_after: CheckLockAfter, StaleForGood, Writer(MarkScope::NoSlot), &[Leased, Client, Untracked];
    lock_by_cache: LockByCache, PaysForAnother, Neighbour(MarkScope::NoSlot), &[Leased, Client, Untracked];
    voids_by_cache: VoidsByCache, PaysForAnother, Neighbour(MarkScope::Cache), &[Leased, Client, Untracked];
    mark_voids: MarkVoids, StaleForGood, Writer(MarkScope::Key), &[Leased, Client];
    pend_before_void: PendBeforeVoid, StaleForGood, Writer(MarkScope::Cache), &[Leased];
    mark_before_removal: MarkBeforeRemoval, StaleForGood, Writer(MarkScope::Key), &[Leased, Untracked];
    removal_waits: RemovalWaits, StaleForGood, Writer(MarkScope::Key), &[Leased, Untracked];
    store_checks_after: StoreChecksAfter, StaleForGood, Writer(MarkScope::Key), &[Leased];
    watch_checks_after: WatchChecksAfter, StaleForGood, Writer(MarkScope::Key), &[Untracked];
    mark_voids_watches: MarkVoidsWatches, StaleForGood, Writer(MarkScope::Cache), &[Untracked];
    watch_before_snapshot: WatchBeforeSnapshot, StaleForGood, Writer(MarkScope::Key), &[Untracked];
    old_snapshot_stores_nothing: OldSnapshotStoresNothing, StaleForGood, Writer(MarkScope::Key), &[RepeatableRead];
    taken_back_unless_void: TakenBackUnlessVoid, StaleForGood, Writer(MarkScope::Key), &[Client];
    delete_checks_again: DeleteChecksAgain, StaleForGood, Deleter, &[Leased, Client, Untracked];
    delete_waits: DeleteWaits, StaleForGood, Deleter, &[Leased, Client, Untracked];
    store_announced: StoreAnnounced, StaleForGood, Deleter, &[Leased, Client, Untracked];
    delete_counts_begun: DeleteCountsBegun, StaleForGood, Deleter, &[Leased, Client, Untracked];
}
