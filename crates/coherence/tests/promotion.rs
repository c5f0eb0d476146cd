//! The model of promotion: it holds with every clause, and each clause that is left out is caught.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by a panic"
)]

use pgcache_coherence::promotion::Actor::{self, *};
use pgcache_coherence::promotion::{Clause, Model, Violation, all, counterexample, explore};

/// Longer ones would be no help to a reader.
const LONGEST: usize = 20;

#[test]
fn with_every_clause_no_read_is_stale_and_nothing_independent_is_lost() {
    let mut states = 0;
    for m in all() {
        match explore(&m) {
            Ok(visited) => states += visited,
            Err(run) => panic!("{:?}, depends {}: {run}", m.actors, m.depends),
        }
    }
    println!("{} configurations, {states} states", all().len());
}

fn caught(clause: Clause, actors: &[Actor], depends: bool, breaks: Violation) {
    let m = Model::new(actors, depends).without(clause);
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
    ($($name:ident: $clause:ident, $actors:expr, $depends:expr, $breaks:ident;)*) => { $(
        #[test]
        fn $name() {
            caught(Clause::$clause, &$actors, $depends, Violation::$breaks);
        }
    )*
        const CONTROLS: &[Clause] = &[$(Clause::$clause,)*];
    };
}

caught_without! {
    standby_stores_nothing: StandbyStoresNothing, [Replay, Fetcher, Reader], true, Stale;
    load_carries_recovery: LoadCarriesRecovery, [Replay, Promoter, Fetcher, Reader], true, Stale;
    opener_drops: OpenerDrops, [Replay, Promoter, Setter, Reader], true, Stale;
    drop_before_open: DropBeforeOpen, [Replay, Promoter, Setter, Reader, Front], true, Stale;
    front_asks: FrontAsks, [Replay, Promoter, Setter, Front], true, Stale;
    keeps_independent: KeepsIndependent, [Promoter, Setter, Reader], false, Lost;
    mark_voids: MarkVoids, [Promoter, Fetcher, Writer, Reader], true, Stale;
}
