//! Every step that can be taken from a state.

use super::model::{Actor, Model, State};
use super::moves::Moves;
use crate::wide::Event;

/// What can happen next.
pub fn successors(m: &Model, from: &State, out: &mut Vec<(Event, State)>) {
    out.clear();
    for (actor, kind) in m.actors.iter().enumerate() {
        let mut moves = Moves {
            m,
            from,
            actor,
            out,
        };
        match kind {
            Actor::Writer(scope) => moves.writer(*scope),
            Actor::Deleter => moves.deleter(),
            Actor::Neighbour(scope) => moves.neighbour(*scope),
            Actor::Fetcher(kind) => moves.fetcher(*kind),
        }
    }
}
