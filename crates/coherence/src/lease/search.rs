//! The model of leases as a machine whose states are visited.

use super::model::{Actor, Model, State, Violation};
use super::step;
use crate::wide::{Event, Machine};

impl Machine for Model {
    type State = State;
    type Violation = Violation;
    const STUCK: Violation = Violation::Stuck;

    fn first(&self) -> State {
        Model::first(self)
    }

    fn successors(&self, from: &State, out: &mut Vec<(Event, State)>) {
        step::successors(self, from, out);
    }

    fn judge(&self, state: &State) -> Option<Violation> {
        state.judge()
    }

    fn all_done(&self, state: &State) -> bool {
        state.all_done()
    }

    fn line(&self, (actor, verb): Event, after: &State) -> String {
        let name = match self.actors[actor] {
            Actor::Writer(scope) => format!("W{actor}({scope:?})"),
            Actor::Deleter => format!("D{actor}"),
            Actor::Neighbour(scope) => format!("N{actor}({scope:?})"),
            Actor::Fetcher(kind) => format!("F{actor}({kind:?})"),
        };
        format!(
            "{:<60} | source {} row {:?} | marks {:?}, of others {:?} | {:?}, {} stores of {}",
            format!("{name} {verb}"),
            after.source,
            after.row,
            after.pending,
            after.others,
            after.lease,
            after.open,
            after.begun
        )
    }
}
