//! Applies a step: computes the next state, merges the backend's unobservable moves into it, and checks the promises
//! at once.
//!
//! `cache_get`, `row_changes` and `end` add the steps; this file contains no rule of the protocol.

use super::model::{Model, Op};
use super::state::{Backend, Phase, State};

/// The actor of steps that no backend takes: evictions, and changes of other caches.
pub const NOBODY: usize = usize::MAX;

/// The description of a step, for the trace.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub actor: usize,
    pub verb: &'static str,
    pub key: Option<usize>,
}

/// Collects the successors of one state.
pub struct Moves<'a> {
    pub m: &'a Model,
    pub from: &'a State,
    pub out: &'a mut Vec<(Event, State)>,
}

impl Moves<'_> {
    pub fn add(
        &mut self,
        actor: usize,
        verb: &'static str,
        key: Option<usize>,
        change: impl FnOnce(&mut State),
    ) {
        let mut next = *self.from;
        change(&mut next);
        if actor != NOBODY {
            settle(self.m, &mut next, actor);
        }
        next.judge_state(self.m);
        self.out.push((Event { actor, verb, key }, next));
    }

    pub fn partition_free(&self) -> bool {
        self.from.shared.partition.is_none()
    }
}

/// Merges moves that only this backend can notice into the step before them.
pub fn settle(m: &Model, state: &mut State, actor: usize) {
    while state.backends[actor].at == Phase::Run {
        let backend = &mut state.backends[actor];
        match m.op(actor, backend.pc) {
            Some(Op::Savepoint) => backend.in_subxact = true,
            Some(Op::Commit) => {}
            Some(Op::Note(key)) => state.note_by_trigger(m, actor, key),
            None if m.scripts[actor].commit_place().is_none() => {
                return finish_reader(m, backend, actor);
            }
            _ => return,
        }
        state.backends[actor].pc += 1;
    }
}

fn finish_reader(m: &Model, backend: &mut Backend, actor: usize) {
    if m.repeatable(actor) {
        backend.at = Phase::Release;
    } else {
        *backend = Backend {
            at: Phase::Done,
            ..Backend::default()
        };
    }
}
