//! Every step that can be taken from a state: by each backend, and by the surroundings.

use crate::model::{Model, Op};
use crate::state::{At, Backend, KEYS, State};

/// The surroundings: eviction, other caches.
pub const NOBODY: usize = usize::MAX;

/// What a step was, for the trace.
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

pub fn successors(m: &Model, from: &State, out: &mut Vec<(Event, State)>) {
    out.clear();
    if from.all_done() {
        return;
    }
    let mut moves = Moves { m, from, out };
    for actor in 0..m.scripts.len() {
        backend_steps(&mut moves, actor);
    }
    surroundings(&mut moves);
}

fn backend_steps(moves: &mut Moves, actor: usize) {
    let before = moves.out.len();
    match moves.from.backends[actor].at {
        At::Run => run_steps(moves, actor),
        At::Lookup | At::Snapshot | At::Row | At::Fill | At::FillHalf | At::MakeSlot => {
            crate::get::continue_get(moves, actor);
        }
        At::Resume => crate::write::finish_resume(moves, actor),
        At::Unmark | At::UnmarkHalf => crate::end::unmark_steps(moves, actor),
        At::Release => crate::end::release_steps(moves, actor),
        At::Done => {}
    }
    let waits = moves.out.len() == before;
    crate::end::abort_steps(moves, actor, waits);
}

fn run_steps(moves: &mut Moves, actor: usize) {
    let backend = &moves.from.backends[actor];
    if moves.m.committing(actor, backend.pc) && crate::end::mark_steps(moves, actor) {
        return;
    }
    match moves.m.op(actor, backend.pc) {
        None => crate::end::commit_step(moves, actor),
        Some(Op::Get(key)) => crate::get::start_get(moves, actor, key),
        Some(Op::Select(key)) => crate::get::select(moves, actor, key),
        Some(op) => crate::write::write_step(moves, actor, op),
    }
}

fn surroundings(moves: &mut Moves) {
    if moves.m.evicts && moves.partition_free() {
        for key in (0..KEYS).filter(|key| moves.from.shared.entries[*key].is_some()) {
            moves.add(NOBODY, "evicts", Some(key), |state| {
                state.shared.entries[key] = None
            });
        }
    }
    if !moves.from.shared.room {
        moves.add(NOBODY, "frees a slot of another cache", None, |state| {
            state.shared.room = true
        });
    }
}

/// Takes what only this backend can notice into the step before it.
pub fn settle(m: &Model, state: &mut State, actor: usize) {
    while state.backends[actor].at == At::Run {
        let backend = &mut state.backends[actor];
        match m.op(actor, backend.pc) {
            Some(Op::Savepoint) => backend.in_sub = true,
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
        backend.at = At::Release;
    } else {
        *backend = Backend {
            at: At::Done,
            ..Backend::default()
        };
    }
}
