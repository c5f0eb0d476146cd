//! Tests the model of client-side caching: with all clauses it keeps its promises, and without any single clause the
//! checker finds a broken promise.

use pgcache_coherence::tracking::Actor::{self, Filler, Finisher, Lowerer, Writer};
use pgcache_coherence::tracking::Change::{Prepared, RolledBack, Rows, Savepoint};
use pgcache_coherence::tracking::Request::{self, Ping, Read};
use pgcache_coherence::tracking::Violation::{self, *};
use pgcache_coherence::tracking::{Clause, Model, all};

use crate::check::{all_hold, breaks};

#[test]
fn with_every_clause_a_client_keeps_the_values_of_the_rows() {
    all_hold(&all());
}

fn caught(clause: Clause, m: Model, promise: Violation) {
    let m = m.without(clause);
    breaks(&m, clause, promise, 30);
}

fn cold(actors: &[Actor], script: &'static [Request]) -> Model {
    Model::new("control", actors, script)
}

fn warm(actors: &[Actor], script: &'static [Request]) -> Model {
    cold(actors, script).warm()
}

caught_without! {
    caught, &[];
    registers_before_read: RegistersBeforeRead, cold(&[Writer(Rows)], &[Read(0)]), StaleForGood;
    noted_before_read: NotedBeforeRead, cold(&[Writer(Rows)], &[Read(0)]), StaleForGood;
    checks_after_visible: ChecksAfterVisible, cold(&[Writer(Rows)], &[Read(0)]), StaleForGood;
    recorded_after_visible: RecordedAfterVisible, cold(&[Writer(Rows)], &[Read(0)]), StaleForGood;
    recorded_before_unmark: RecordedBeforeUnmark, warm(&[Writer(Rows), Filler(0)], &[Read(0)]), OldBesideNew;
    recorded_before_ack: RecordedBeforeAck, warm(&[Writer(Rows)], &[Ping]), StaleAfterReply;
    back_waits: BackWaits, warm(&[Writer(Rows)], &[Read(0)]), OldBesideNew;
    drained_before_reply: DrainedBeforeReply, warm(&[Writer(Rows)], &[Read(0)]), OldBesideNew;
    sent_again: SentAgain, cold(&[Writer(Rows)], &[Read(0)]), StaleForGood;
    lost_invalidates_all: LostInvalidatesAll, warm(&[Writer(Rows), Writer(Rows)], &[Ping]), StaleAfterReply;
    rollback_silent: RollbackSilent, warm(&[Writer(RolledBack)], &[Ping]), InvalidatedForNothing;
    savepoint_silent: SavepointSilent, warm(&[Writer(Savepoint)], &[Ping]), InvalidatedForNothing;
    record_invalidates: RecordInvalidates, warm(&[Writer(Prepared), Finisher], &[]), StaleForGood;
    finisher_waits: FinisherWaits, warm(&[Writer(Prepared), Finisher, Lowerer], &[Ping]), StaleAfterReply;
    unproven_owes: UnprovenOwes, cold(&[Finisher], &[Read(0)]).recovered(), StaleForGood;
}
