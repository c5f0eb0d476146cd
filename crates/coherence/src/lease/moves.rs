//! The making of a step, and what steps of writers and fetchers have in common.

use super::model::{Backend, Clause, Lease, Model, Phase, State};
use crate::wide::Event;

pub struct Moves<'a> {
    pub m: &'a Model,
    pub from: &'a State,
    pub actor: usize,
    pub out: &'a mut Vec<(Event, State)>,
}

impl Moves<'_> {
    pub fn add(
        &mut self,
        verb: &'static str,
        at: Phase,
        change: impl FnOnce(&mut State, &mut Backend),
    ) {
        let mut state = *self.from;
        let mut backend = state.backends[self.actor];
        backend.at = at;
        change(&mut state, &mut backend);
        if at == Phase::Done {
            backend = Backend {
                at,
                ..Backend::default()
            };
        }
        state.backends[self.actor] = backend;
        self.out.push(((self.actor, verb), state));
    }

    pub fn me(&self) -> &Backend {
        &self.from.backends[self.actor]
    }

    pub fn others(&self) -> impl Iterator<Item = &Backend> {
        let me = self.actor;
        let backends = self.from.backends.iter().enumerate();
        backends.filter_map(move |(actor, backend)| (actor != me).then_some(backend))
    }
}

/// A writer has removed the committed row and not ended.
pub fn removes(backend: &Backend) -> bool {
    use Phase::*;
    backend.has_removed
        && matches!(
            backend.at,
            Committing | LateMarking | LateVoiding | Removing | Marking | LookingAgain
        )
}

pub fn unmark(state: &mut State, backend: &mut Backend) {
    if std::mem::take(&mut backend.marked) {
        state.pending[0] -= 1;
    }
    if std::mem::take(&mut backend.announced) {
        state.open -= 1;
    }
}

/// All but one's own that it has stored under.
pub fn void(m: &Model, state: &mut State, own: Option<u8>) {
    if m.keeps(Clause::MarkVoids) {
        state.lease = match state.lease {
            Lease::Stored(by) if Some(by) != own => Lease::StoredVoid(by),
            Lease::Computing(_) => Lease::Free,
            other => other,
        };
    }
    if m.keeps(Clause::MarkVoidsWatches) {
        for backend in &mut state.backends {
            backend.watches = false;
        }
    }
}

pub fn release(state: &mut State, id: u8) {
    let by = [
        Lease::Computing(id),
        Lease::Stored(id),
        Lease::StoredVoid(id),
    ];
    if by.contains(&state.lease) {
        state.lease = Lease::Free;
    }
}
