//! Checks that the tests of all models share: a model keeps its promises, or breaks one without a clause.

use std::fmt::Debug;

use pgcache_coherence::search::{Machine, Run, counterexample, explore};

const MOST_STATES: usize = 20_000_000;

/// Visits every state, checks that no promise is broken, and returns the number of states.
pub fn holds<M: Machine>(m: &M) -> usize {
    let report = explore(m, MOST_STATES);
    if report.violation.is_some() {
        panic!("{}", counterexample(m).expect("explore found one"));
    }
    let title = m.title();
    assert!(
        report.complete,
        "{title} has more than {MOST_STATES} states"
    );
    report.states
}

pub fn all_hold<M: Machine>(models: &[M]) {
    let states: usize = models.iter().map(holds).sum();
    println!("{} configurations, {states} states", models.len());
}

/// Returns the shortest run that breaks a promise in a model without these clauses.
pub fn run_without<M: Machine>(m: &M, clauses: impl Debug) -> Run<M::Violation> {
    let run = counterexample(m);
    let run = run.unwrap_or_else(|| panic!("without {clauses:?} nothing breaks"));
    println!("without {clauses:?}, {run}");
    run
}

/// Checks that the shortest run breaks this promise, in at most `longest` steps. A longer run would not help a reader.
pub fn breaks<M: Machine>(m: &M, clauses: impl Debug, promise: M::Violation, longest: usize)
where
    M::Violation: PartialEq,
{
    let run = run_without(m, clauses);
    assert_eq!(run.violation, promise);
    assert!(run.len() <= longest, "{} steps", run.len());
}

/// Makes a test for each clause, which calls `$caught` with the clause and the rest of the line, and a test that every
/// clause has a line. A model without only one of the clauses in `$covered` breaks no promise.
macro_rules! caught_without {
    ($caught:ident, $covered:expr; $($name:ident: $clause:ident $(, $argument:expr)*;)*) => {
        $(
            #[test]
            fn $name() {
                $caught(Clause::$clause $(, $argument)*);
            }
        )*

        #[test]
        fn every_clause_has_its_control() {
            let controls: &[Clause] = &[$(Clause::$clause,)*];
            let covered: &[Clause] = $covered;
            for clause in Clause::ALL {
                let found = controls.iter().chain(covered).filter(|control| *control == clause);
                assert_eq!(found.count(), 1, "{clause:?}");
            }
        }
    };
}
