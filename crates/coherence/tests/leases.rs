//! The model of leases: it holds with every clause, and each clause that is left out is caught.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by a panic"
)]

use pgcache_coherence::lease::Actor::{self, Fetcher, Writer};
use pgcache_coherence::lease::Clause;
use pgcache_coherence::lease::FetcherKind::*;
use pgcache_coherence::lease::{MarkScope, Model, Violation, all, counterexample, explore};

/// Longer ones would be no help to a reader.
const LONGEST: usize = 30;

#[test]
fn with_every_clause_the_entry_is_what_the_source_holds_or_gone() {
    let mut states = 0;
    for m in all() {
        match explore(&m) {
            Ok(visited) => states += visited,
            Err(run) => panic!("{}, {:?}: {run}", m.name, m.actors),
        }
    }
    println!("{} configurations, {states} states", all().len());
}

fn stale(m: Model, clauses: &[Clause]) {
    let m = clauses.iter().fold(m, |m, clause| m.without(*clause));
    let run = counterexample(&m).unwrap_or_else(|| panic!("without {clauses:?} nothing breaks"));
    println!("without {clauses:?}, {run}");
    assert_eq!(run.violation, Violation::StaleForGood);
    assert!(run.len() <= LONGEST, "{} steps", run.len());
}

fn control(actors: &[Actor]) -> Model {
    Model::new("control", actors)
}

/// As it was before marks and leases knew of each other: won after the mark, stored, and there for good.
#[test]
fn without_all_of_them_a_lease_is_won_between_mark_and_unmark() {
    for kind in [Leased, Client, Untracked, RepeatableRead] {
        for scope in [MarkScope::Key, MarkScope::Cache, MarkScope::Global] {
            stale(control(&[Writer(scope), Fetcher(kind)]), Clause::ALL);
        }
    }
}

#[test]
fn every_clause_has_its_control() {
    for clause in Clause::ALL {
        let controls = CONTROLS.iter().filter(|control| *control == clause);
        assert_eq!(controls.count(), 1, "{clause:?}");
    }
}

macro_rules! caught_without {
    ($($name:ident: $clause:ident, $scope:ident, $($kind:ident)*;)*) => { $(
        #[test]
        fn $name() {
            $(stale(control(&[Writer(MarkScope::$scope), Fetcher($kind)]), &[Clause::$clause]);)*
        }
    )*
        const CONTROLS: &[Clause] = &[$(Clause::$clause,)*];
    };
}

caught_without! {
    grant_stripe_pend: GrantStripePend, Key, Leased Client;
    grant_cache_pend: GrantCachePend, Cache, Leased Client;
    grant_global_pend: GrantGlobalPend, Global, Leased Client;
    mark_voids: MarkVoids, Key, Leased Client;
    pend_before_void: PendBeforeVoid, Cache, Leased;
    mark_before_removal: MarkBeforeRemoval, Key, Leased Untracked;
    removal_waits: RemovalWaits, Key, Leased Untracked;
    store_asks_after: StoreAsksAfter, Key, Leased;
    token_asks_after: TokenAsksAfter, Key, Untracked;
    token_pend: TokenPend, Key, Untracked;
    token_stripe: TokenStripe, Key, Untracked;
    token_cache: TokenCache, Cache, Untracked;
    token_global: TokenGlobal, Global, Untracked;
    token_before_snapshot: TokenBeforeSnapshot, Key, Untracked;
    old_snapshot_stores_nothing: OldSnapshotStoresNothing, Key, RepeatableRead;
    taken_back_unless_void: TakenBackUnlessVoid, Key, Client;
}
