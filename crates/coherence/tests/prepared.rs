//! The model of prepared transactions: it holds with every clause, and each clause that is left out is caught.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by a panic"
)]

use pgcache_coherence::prepared::Actor::{self, Fetcher, Finisher, Preparer, Reader, Writer};
use pgcache_coherence::prepared::Change::{DropsTheCache, ManyRows, Row};
use pgcache_coherence::prepared::FetcherKind::{Leased, Memory, Untracked};
use pgcache_coherence::prepared::{Clause, Model, Violation, all, counterexample, explore};

/// Longer ones would be no help to a reader.
const LONGEST: usize = 30;

#[test]
fn with_every_clause_no_copy_is_stale_and_nothing_is_left_behind() {
    let mut states = 0;
    for m in all() {
        match explore(&m) {
            Ok(visited) => states += visited,
            Err(run) => panic!("{}, {:?}, restarts {}: {run}", m.name, m.actors, m.restarts),
        }
    }
    println!("{} configurations, {states} states", all().len());
}

fn caught(clause: Clause, actors: &[Actor], restarts: bool, breaks: Violation) {
    let mut m = Model::new("control", actors).without(clause);
    m.restarts = restarts;
    let run = counterexample(&m).unwrap_or_else(|| panic!("without {clause:?} nothing breaks"));
    println!("without {clause:?}, {run}");
    assert_eq!(run.violation, breaks);
    assert!(run.len() <= LONGEST, "{} steps", run.len());
}

#[test]
fn every_clause_has_its_control() {
    for clause in Clause::ALL {
        let controls = CONTROLS.iter().filter(|control| *control == clause);
        assert_eq!(controls.count(), 1, "{clause:?}");
    }
}

macro_rules! caught_without {
    ($($name:ident: $clause:ident, $actors:expr, $restarts:expr, $breaks:ident;)*) => { $(
        #[test]
        fn $name() {
            caught(Clause::$clause, &$actors, $restarts, Violation::$breaks);
        }
    )*
        const CONTROLS: &[Clause] = &[$(Clause::$clause,)*];
    };
}

caught_without! {
    marks_stand: MarksStand, [Preparer(Row), Finisher, Reader(0)], false, StaleCopy;
    fence_stands: FenceStands, [Preparer(Row), Finisher, Fetcher(Memory)], false, StaleForGood;
    overflow_stands: OverflowStands, [Preparer(ManyRows), Finisher, Reader(0)], false, StaleCopy;
    asks_progress_not_log: AsksProgressNotLog, [Preparer(Row), Finisher, Reader(0)], false, StaleCopy;
    asks_progress_not_list: AsksProgressNotList, [Preparer(Row), Finisher, Reader(0)], false, StaleCopy;
    lowering_claims: LoweringClaims, [Preparer(Row), Finisher, Reader(0)], false, UndoneTwice;
    abort_claims: AbortClaims, [Preparer(Row), Finisher, Writer, Reader(1)], false, UndoneTwice;
    void_before_fence: VoidBeforeFence, [Preparer(Row), Finisher, Fetcher(Memory)], false, StaleForGood;
    drop_frees_slot: DropFreesSlot, [Preparer(DropsTheCache), Finisher], false, LeftBehind;
    snapshot_after_question: SnapshotAfterQuestion, [Preparer(Row), Finisher, Reader(0)], false, StaleCopy;
    no_lease_while_pending: NoLeaseWhilePending, [Preparer(Row), Finisher, Fetcher(Leased)], false, StaleForGood;
    no_store_while_pending: NoStoreWhilePending, [Preparer(Row), Finisher, Fetcher(Untracked)], false, StaleForGood;
    restart_suspends: RestartSuspends, [Preparer(Row), Finisher, Reader(0)], true, StaleCopy;
}
