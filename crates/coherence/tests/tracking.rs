//! The model of client-side caching: it holds with every clause, and each clause that is left out is caught.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by a panic"
)]

use pgcache_coherence::tracking::Actor::{self, Filler, Finisher, Lowerer, Writer};
use pgcache_coherence::tracking::Ask::{self, Ping, Read};
use pgcache_coherence::tracking::Change::{Prepared, RolledBack, Rows, Savepoint};
use pgcache_coherence::tracking::{Clause, Model, Violation, all, counterexample, explore};

/// Longer ones would be no help to a reader.
const LONGEST: usize = 30;

#[test]
fn with_every_clause_a_client_keeps_what_the_rows_are() {
    let mut states = 0;
    for m in all() {
        match explore(&m) {
            Ok(visited) => states += visited,
            Err(run) => panic!("{}, {:?}, {:?}: {run}", m.name, m.actors, m.script),
        }
    }
    println!("{} configurations, {states} states", all().len());
}

fn caught(m: Model, clause: Clause, breaks: Violation) {
    let m = m.without(clause);
    let run = counterexample(&m).unwrap_or_else(|| panic!("without {clause:?} nothing breaks"));
    println!("without {clause:?}, {run}");
    assert_eq!(run.violation, breaks);
    assert!(run.len() <= LONGEST, "{} steps", run.len());
}

fn cold(actors: &[Actor], script: &'static [Ask]) -> Model {
    Model::new("control", actors, script)
}

fn warm(actors: &[Actor], script: &'static [Ask]) -> Model {
    cold(actors, script).warm()
}

#[test]
fn every_clause_has_its_control() {
    for clause in Clause::ALL {
        let controls = CONTROLS.iter().filter(|control| *control == clause);
        assert_eq!(controls.count(), 1, "{clause:?}");
    }
}

macro_rules! caught_without {
    ($($name:ident: $clause:ident, $model:expr, $breaks:ident;)*) => { $(
        #[test]
        fn $name() {
            caught($model, Clause::$clause, Violation::$breaks);
        }
    )*
        const CONTROLS: &[Clause] = &[$(Clause::$clause,)*];
    };
}

caught_without! {
    asks_before_read: AsksBeforeRead, cold(&[Writer(Rows)], &[Read(0)]), StaleForGood;
    noted_before_read: NotedBeforeRead, cold(&[Writer(Rows)], &[Read(0)]), StaleForGood;
    looks_after_visible: LooksAfterVisible, cold(&[Writer(Rows)], &[Read(0)]), StaleForGood;
    told_after_visible: ToldAfterVisible, cold(&[Writer(Rows)], &[Read(0)]), StaleForGood;
    told_before_unmark: ToldBeforeUnmark, warm(&[Writer(Rows), Filler(0)], &[Read(0)]), OldBesideNew;
    told_before_ack: ToldBeforeAck, warm(&[Writer(Rows)], &[Ping]), StaleAfterReply;
    back_waits: BackWaits, warm(&[Writer(Rows)], &[Read(0)]), OldBesideNew;
    drained_before_reply: DrainedBeforeReply, warm(&[Writer(Rows)], &[Read(0)]), OldBesideNew;
    told_again: ToldAgain, cold(&[Writer(Rows)], &[Read(0)]), StaleForGood;
    lost_tells_all: LostTellsAll, warm(&[Writer(Rows), Writer(Rows)], &[Ping]), StaleAfterReply;
    rollback_silent: RollbackSilent, warm(&[Writer(RolledBack)], &[Ping]), ToldOfNothing;
    savepoint_silent: SavepointSilent, warm(&[Writer(Savepoint)], &[Ping]), ToldOfNothing;
    record_tells: RecordTells, warm(&[Writer(Prepared), Finisher], &[]), StaleForGood;
    finisher_waits: FinisherWaits, warm(&[Writer(Prepared), Finisher, Lowerer], &[Ping]), StaleAfterReply;
    unproven_owes: UnprovenOwes, cold(&[Finisher], &[Read(0)]).recovered(), StaleForGood;
}
