//! Tests the model of client-side caching: with all clauses it keeps its promises, and without any single clause the
//! checker finds a broken promise.

use pgcache_coherence::tracking::Actor::{self, Filler, Finisher, Lowerer, Writer};
use pgcache_coherence::tracking::Ask::{self, Ping, Read};
use pgcache_coherence::tracking::Change::{Prepared, RolledBack, Rows, Savepoint};
use pgcache_coherence::tracking::Violation::{self, *};
use pgcache_coherence::tracking::{Clause, Model, all};

use crate::check::{all_hold, breaks};

#[test]
fn with_every_clause_a_client_keeps_what_the_rows_are() {
    all_hold(&all());
}

fn caught(clause: Clause, m: Model, promise: Violation) {
    let m = m.without(clause);
    breaks(&m, clause, promise, 30);
}

fn cold(actors: &[Actor], script: &'static [Ask]) -> Model {
    Model::new("control", actors, script)
}

fn warm(actors: &[Actor], script: &'static [Ask]) -> Model {
    cold(actors, script).warm()
}

caught_without! {
    caught, &[];
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
