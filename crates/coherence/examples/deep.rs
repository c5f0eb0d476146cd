//! Checks the protocol of the hot tier in configurations that are too large for every test run.
//!
//! `cargo run --release -p pgcache-coherence --example deep [states]` visits at most `states` states (default: 40
//! million) of each configuration, and prints the number of visited states. It needs about ten minutes and a gigabyte.

#![allow(clippy::print_stdout, reason = "a tool for the terminal, run by hand")]

use std::process::ExitCode;
use std::time::Instant;

use pgcache_coherence::hot_tier::model::Op::*;
use pgcache_coherence::hot_tier::model::{FirstSlot, Model};
use pgcache_coherence::search::{counterexample, explore};

fn three_writers() -> Model {
    Model::new("three writers")
        .actor("W1", &[Set(0), Set(1), Commit])
        .actor("W2", &[Delete(0), Commit])
        .actor("W3", &[Set(1), Set(0), Commit])
        .actor("R1", &[Get(0), Get(1)])
        .repeatable_read("RR", &[Get(0), Select(0)])
}

fn plain_sql_and_savepoints() -> Model {
    let mut m = Model::new("plain SQL and savepoints")
        .actor(
            "W1",
            &[
                Change(0),
                Get(0),
                Note(0),
                Savepoint,
                Set(0),
                RollbackTo,
                Get(0),
                Commit,
                Set(1),
            ],
        )
        .actor(
            "W2",
            &[Savepoint, Set(1), RollbackTo, Set(0), Commit, Set(1)],
        )
        .actor("R1", &[Get(0), Get(1), Get(0)])
        .repeatable_read("RR", &[Get(0), Select(0), Get(1)]);
    m.warm = true;
    m.abort_reruns = true;
    m
}

fn truncate_and_overflow() -> Model {
    let mut m = Model::new("truncate and overflow")
        .actor("W1", &[Set(0), Truncate, Set(0), Commit])
        .actor("W2", &[Set(1), Overflow, Set(0), Commit])
        .actor("W3", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)])
        .repeatable_read("RR", &[Get(0), Select(0)]);
    m.warm = true;
    m
}

fn late_overflow_of_two() -> Model {
    Model::new("late overflow of two")
        .actor(
            "W1",
            &[
                Savepoint,
                Set(0),
                Overflow,
                RollbackTo,
                Commit,
                Set(1),
                Set(0),
            ],
        )
        .actor("W2", &[Set(0), Commit, Set(1), Overflow])
        .actor("W3", &[Set(1), Commit])
        .actor("R1", &[Get(0), Get(1)])
}

fn slot_table_full() -> Model {
    let mut m = Model::new("slot table full, three writers")
        .actor(
            "W1",
            &[Savepoint, Set(1), Overflow, RollbackTo, Commit, Set(0)],
        )
        .actor("W2", &[Set(0), Overflow, Commit])
        .actor("W3", &[Set(0), Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.slot = FirstSlot::TableFull;
    m
}

fn drop_create_drop() -> Model {
    let mut m = Model::new("drop, create, drop")
        .actor("W1", &[Savepoint, Set(0), Overflow, RollbackTo, Commit])
        .actor("W2", &[Set(0), Drop, Commit])
        .actor("W3", &[Create, Set(0), Commit])
        .actor("W4", &[Drop, Commit])
        .actor("R1", &[Get(0), Get(0)]);
    m.warm = true;
    m
}

fn suspension_of_two() -> Model {
    let mut m = Model::new("suspension, two writers")
        .actor("A1", &[Disable, Commit])
        .actor("W1", &[Change(0), Note(0), Commit])
        .actor("A2", &[EnableAlways, Change(0), Note(0), Commit])
        .actor("S1", &[Resume, Resume])
        .actor("R1", &[Get(0), Get(0), Get(0)]);
    m.warm = true;
    m
}

fn main() -> ExitCode {
    let limit = std::env::args()
        .nth(1)
        .and_then(|states| states.parse().ok())
        .unwrap_or(40_000_000);
    let deep = [
        three_writers(),
        plain_sql_and_savepoints(),
        truncate_and_overflow(),
        late_overflow_of_two(),
        slot_table_full(),
        drop_create_drop(),
        suspension_of_two(),
    ];
    let mut total = 0;
    for mut m in deep {
        m.checks_each_state = true;
        let start = Instant::now();
        let report = explore(&m, limit);
        total += report.states;
        let reach = if report.complete { "all" } else { "first" };
        println!(
            "{:32} {reach:>5} {:>11} states, {:>4} s",
            m.name,
            report.states,
            start.elapsed().as_secs()
        );
        if report.violation.is_some() {
            counterexample(&m).inspect(|run| println!("{run}"));
            return ExitCode::FAILURE;
        }
    }
    println!("{total} states, no promise broken");
    ExitCode::SUCCESS
}
