//! Assertions shared by the tests of all models: that a model keeps its promises, and that it breaks one without a
//! given clause.

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

/// Returns the shortest run that breaks a promise in `m`, a model without `clauses`, and prints it.
pub fn run_without<M: Machine>(m: &M, clauses: impl Debug) -> Run<M::Violation> {
    let run = counterexample(m);
    let run = run.unwrap_or_else(|| panic!("without {clauses:?} nothing breaks"));
    println!("without {clauses:?}, {run}");
    run
}

/// Checks that the shortest run breaks this promise, in at most `longest` steps. A longer counterexample would be too
/// hard to read.
pub fn breaks<M: Machine>(m: &M, clauses: impl Debug, promise: M::Violation, longest: usize)
where
    M::Violation: PartialEq,
{
    let run = run_without(m, clauses);
    assert_eq!(run.violation, promise);
    assert!(run.len() <= longest, "{} steps", run.len());
}

/// Makes one test for each line: it calls `$caught` with the line's clause and arguments. Also makes a test that every
/// clause is either on a line or in `$covered`. The clauses in `$covered` can each be left out alone without breaking a
/// promise.
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
