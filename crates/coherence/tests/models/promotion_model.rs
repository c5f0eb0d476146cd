//! Tests the model of promotion: with all clauses it keeps its promises, and without any single clause the checker
//! finds a broken promise.

use pgcache_coherence::promotion::Actor::{self, *};
use pgcache_coherence::promotion::Violation::{self, Lost, Stale};
use pgcache_coherence::promotion::{Clause, Model, all};

use crate::check::{all_hold, breaks};

#[test]
fn with_every_clause_no_read_is_stale_and_nothing_independent_is_lost() {
    all_hold(&all());
}

fn caught(clause: Clause, actors: &[Actor], depends: bool, promise: Violation) {
    let m = Model::new(actors, depends).without(clause);
    breaks(&m, clause, promise, 20);
}

caught_without! {
    caught, &[];
    standby_stores_nothing: StandbyStoresNothing, &[Replay, Fetcher, Reader], true, Stale;
    load_carries_recovery: LoadCarriesRecovery, &[Replay, Promoter, Fetcher, Reader], true, Stale;
    opener_drops: OpenerDrops, &[Replay, Promoter, Setter, Reader], true, Stale;
    drop_before_open: DropBeforeOpen, &[Replay, Promoter, Setter, Reader, Front], true, Stale;
    front_checks: FrontChecks, &[Replay, Promoter, Setter, Front], true, Stale;
    keeps_independent: KeepsIndependent, &[Promoter, Setter, Reader], false, Lost;
    mark_voids: MarkVoids, &[Promoter, Fetcher, Writer, Reader], true, Stale;
}
