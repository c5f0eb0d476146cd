//! Visits every state of a small model, wide first, and keeps the way back: what it finds is as short as can be.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

/// What a step was, for the trace: who took it, and what it did.
pub type Event = (usize, &'static str);

/// A model whose states can all be kept.
pub trait Machine {
    type State: Copy + Eq + Hash;
    type Violation: Copy + fmt::Debug;
    /// Of a state that cannot go on although not all have ended.
    const STUCK: Self::Violation;

    fn first(&self) -> Self::State;
    /// What can happen next, in the place of what is in `out`.
    fn successors(&self, from: &Self::State, out: &mut Vec<(Event, Self::State)>);
    fn judge(&self, state: &Self::State) -> Option<Self::Violation>;
    fn all_done(&self, state: &Self::State) -> bool;
    /// A line of a trace.
    fn line(&self, event: Event, after: &Self::State) -> String;
}

/// A run that breaks the promise, as short as can be.
#[derive(Debug)]
pub struct Run<V> {
    pub violation: V,
    lines: Vec<String>,
}

impl<V> Run<V> {
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl<V: fmt::Debug> fmt::Display for Run<V> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{:?}", self.violation)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

struct Visited<S> {
    state: S,
    before: usize,
    event: Event,
}

/// How many states there are, or how the promise is broken.
pub fn explore<M: Machine>(m: &M) -> Result<usize, Run<M::Violation>> {
    let mut seen = HashSet::from([m.first()]);
    let mut visited = vec![Visited {
        state: m.first(),
        before: 0,
        event: (0, ""),
    }];
    let (mut at, mut next) = (0, Vec::new());
    while at < visited.len() {
        let state = visited[at].state;
        if let Some(violation) = m.judge(&state) {
            return Err(run(m, &visited, at, violation));
        }
        m.successors(&state, &mut next);
        if next.is_empty() && !m.all_done(&state) {
            return Err(run(m, &visited, at, M::STUCK));
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

pub fn counterexample<M: Machine>(m: &M) -> Option<Run<M::Violation>> {
    explore(m).err()
}

fn run<M: Machine>(
    m: &M,
    visited: &[Visited<M::State>],
    mut at: usize,
    violation: M::Violation,
) -> Run<M::Violation> {
    let mut lines = Vec::new();
    while at != 0 {
        lines.push(m.line(visited[at].event, &visited[at].state));
        at = visited[at].before;
    }
    lines.reverse();
    Run { violation, lines }
}
