//! Tests the model of prepared transactions: with all clauses it keeps its promises, and without any single clause the
//! checker finds a broken promise.

use pgcache_coherence::prepared::Actor::{self, Fetcher, Finisher, Preparer, Reader, Writer};
use pgcache_coherence::prepared::Change::{DropsTheCache, ManyRows, Row};
use pgcache_coherence::prepared::FetcherKind::{Leased, Memory, Untracked};
use pgcache_coherence::prepared::Violation::{self, *};
use pgcache_coherence::prepared::{Clause, Model, all};

use crate::check::{all_hold, breaks};

#[test]
fn with_every_clause_no_copy_is_stale_and_nothing_is_left_behind() {
    all_hold(&all());
}

fn caught(clause: Clause, actors: &[Actor], restarts: bool, promise: Violation) {
    let mut m = Model::new("control", actors).without(clause);
    m.restarts = restarts;
    breaks(&m, clause, promise, 30);
}

caught_without! {
    caught, &[];
    marks_stand: MarksStand, &[Preparer(Row), Finisher, Reader(0)], false, StaleCopy;
    fence_stands: FenceStands, &[Preparer(Row), Finisher, Fetcher(Memory)], false, StaleForGood;
    overflow_stands: OverflowStands, &[Preparer(ManyRows), Finisher, Reader(0)], false, StaleCopy;
    checks_progress_not_log: ChecksProgressNotLog, &[Preparer(Row), Finisher, Reader(0)], false, StaleCopy;
    checks_progress_not_list: ChecksProgressNotList, &[Preparer(Row), Finisher, Reader(0)], false, StaleCopy;
    lowering_claims: LoweringClaims, &[Preparer(Row), Finisher, Reader(0)], false, UndoneTwice;
    abort_claims: AbortClaims, &[Preparer(Row), Finisher, Writer, Reader(1)], false, UndoneTwice;
    void_before_fence: VoidBeforeFence, &[Preparer(Row), Finisher, Fetcher(Memory)], false, StaleForGood;
    drop_frees_slot: DropFreesSlot, &[Preparer(DropsTheCache), Finisher], false, LeftBehind;
    snapshot_after_question: SnapshotAfterQuestion, &[Preparer(Row), Finisher, Reader(0)], false, StaleCopy;
    no_lease_while_pending: NoLeaseWhilePending, &[Preparer(Row), Finisher, Fetcher(Leased)], false, StaleForGood;
    no_store_while_pending: NoStoreWhilePending, &[Preparer(Row), Finisher, Fetcher(Untracked)], false, StaleForGood;
    restart_suspends: RestartSuspends, &[Preparer(Row), Finisher, Reader(0)], true, StaleCopy;
}
