//! Visits every state, wide first, and keeps the way back.

use std::collections::HashSet;
use std::fmt;

use super::model::{Actor, Model, State, Violation};
use super::moves::Event;
use super::step::successors;

/// A run that breaks the promise, as short as can be.
#[derive(Debug)]
pub struct Run {
    pub violation: Violation,
    lines: Vec<String>,
}

impl Run {
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{:?}", self.violation)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

struct Visited {
    state: State,
    before: usize,
    event: Event,
}

/// How many states there are, or how the promise is broken.
pub fn explore(m: &Model) -> Result<usize, Run> {
    let mut seen = HashSet::from([m.first()]);
    let mut visited = vec![Visited {
        state: m.first(),
        before: 0,
        event: (0, ""),
    }];
    let (mut at, mut next) = (0, Vec::new());
    while at < visited.len() {
        let state = visited[at].state;
        if let Some(violation) = state.judge() {
            return Err(run(m, &visited, at, violation));
        }
        successors(m, &state, &mut next);
        if next.is_empty() && !state.all_done() {
            return Err(run(m, &visited, at, Violation::Stuck));
        }
        for (event, state) in next.drain(..) {
            if seen.insert(state) {
                visited.push(Visited {
                    state,
                    before: at,
                    event,
                });
            }
        }
        at += 1;
    }
    Ok(visited.len())
}

pub fn counterexample(m: &Model) -> Option<Run> {
    explore(m).err()
}

fn run(m: &Model, visited: &[Visited], mut at: usize, violation: Violation) -> Run {
    let mut lines = Vec::new();
    while at != 0 {
        let Visited {
            state,
            before,
            event: (actor, verb),
        } = &visited[at];
        let name = match m.actors[*actor] {
            Actor::Writer(scope) => format!("W{actor}({scope:?})"),
            Actor::Fetcher(kind) => format!("F{actor}({kind:?})"),
        };
        let words = state
            .words
            .map(|words| format!("v{} p{}", words.ver, words.pending_writers))
            .join(", ");
        lines.push(format!(
            "{:<60} | source {} row {:?} | {words} | {:?}",
            format!("{name} {verb}"),
            state.source,
            state.row,
            state.lease
        ));
        at = *before;
    }
    lines.reverse();
    Run { violation, lines }
}
