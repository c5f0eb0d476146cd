//! The making of a step, and who takes which.

use super::model::{Actor, Backend, Message, Model, Phase, RING, State, Told, Violation};
use crate::wide::Event;

pub struct Moves<'a> {
    pub m: &'a Model,
    pub from: &'a State,
    pub actor: usize,
    pub out: &'a mut Vec<(Event, State)>,
}

/// What can happen next.
pub fn successors(m: &Model, from: &State, out: &mut Vec<(Event, State)>) {
    out.clear();
    for (actor, &kind) in m.actors.iter().enumerate() {
        let mut moves = Moves {
            m,
            from,
            actor,
            out,
        };
        match kind {
            Actor::Writer(change) => moves.writer(change),
            Actor::Finisher => moves.finisher(),
            Actor::Lowerer => moves.lowerer(),
            Actor::Filler(key) => moves.filler(key),
        }
    }
    let mut moves = Moves {
        m,
        from,
        actor: m.actors.len(),
        out,
    };
    moves.front();
}

impl Moves<'_> {
    pub fn me(&self) -> &Backend {
        &self.from.backends[self.actor]
    }

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
        if backend.at == Phase::Done {
            backend = Backend {
                at: Phase::Done,
                ..Backend::default()
            };
        }
        state.backends[self.actor] = backend;
        self.out.push(((self.actor, verb), state));
    }

    /// A step of the front or the client.
    pub fn goes(&mut self, verb: &'static str, change: impl FnOnce(&mut State)) {
        let mut state = *self.from;
        change(&mut state);
        self.out.push(((self.actor, verb), state));
    }
}

impl State {
    /// Writes a record into the ring.
    pub fn tell(&mut self, told: Told) {
        self.ring[self.head as usize % RING] = told;
        self.head += 1;
    }

    pub fn say(&mut self, message: Message) {
        if let Some(place) = self.line.iter_mut().find(|place| place.is_none()) {
            *place = Some(message);
        }
    }

    /// Places on the way to the client.
    pub fn room(&self) -> usize {
        self.line.iter().filter(|place| place.is_none()).count()
    }

    pub fn mark(&mut self) {
        self.copies = [None; 2];
        self.pending_writers += 1;
        self.ver += 1;
    }

    pub fn unmark(&mut self) {
        self.pending_writers -= 1;
        self.ver += 1;
    }

    pub fn token(&self) -> Option<u8> {
        (self.pending_writers == 0 && !self.unproven).then_some(self.ver)
    }

    pub fn fill(&mut self, key: usize, value: u8, token: Option<u8>) {
        if token.is_some() && self.token() == token {
            self.copies[key] = Some(value);
        }
    }

    pub fn break_by(&mut self, violation: Violation) {
        self.broken = self.broken.or(Some(violation));
    }
}
