//! Implements the search's view of the model: the first state, and every step that a backend or the surroundings can
//! take from a state.

use super::clause::Clause;
use super::model::{FirstSlot, Model, Op, first_value};
use super::moves::{Event, Moves, NOBODY, settle};
use super::state::{INITIAL_XID, KEYS, MAX_ACTORS, Phase, State, Version, Violation};
use super::tier_access::WordGroup;
use super::{cache_get, end, row_changes, trace};
use crate::search::Machine;

impl Machine for Model {
    type State = State;
    type Event = Event;
    type Violation = Violation;
    const STUCK: Violation = Violation::Stuck;

    /// Returns the state before any step, with the rows, the slot and the entries that the model requests.
    fn first(&self) -> State {
        let mut state = State {
            table: Default::default(),
            shared: Default::default(),
            backends: Default::default(),
            broken: None,
        };
        state.table.exists = true;
        state.table.always = true;
        state.table.committed = 1 << INITIAL_XID;
        state.shared.room = self.slot != FirstSlot::TableFull;
        if self.slot == FirstSlot::Present {
            state.make_slot(true);
            if let Some(slot) = &mut state.shared.slot {
                slot.proven = true;
            }
        }
        for key in 0..KEYS {
            let value = first_value(key);
            state.table.rows[key].push(Version {
                xid: INITIAL_XID,
                value,
                ..Version::default()
            });
            if self.warm {
                let mut token = Default::default();
                state.read_words(&mut token, 0, WordGroup::Epochs);
                let checks = [Clause::FillGeneration, Clause::FillEpoch];
                state.install(self, key, value, INITIAL_XID, &token, checks);
            }
        }
        for actor in 0..MAX_ACTORS {
            if actor < self.scripts.len() {
                settle(self, &mut state, actor);
            } else {
                state.backends[actor].at = Phase::Done;
            }
        }
        state
    }

    fn successors(&self, from: &State, out: &mut Vec<(Event, State)>) {
        out.clear();
        if from.all_done() {
            return;
        }
        let mut moves = Moves { m: self, from, out };
        for actor in 0..self.scripts.len() {
            backend_steps(&mut moves, actor);
        }
        surroundings(&mut moves);
    }

    /// Returns the violation that a step has recorded; each step itself checks the state that it makes.
    fn judge(&self, state: &State) -> Option<Violation> {
        state.broken
    }

    fn all_done(&self, state: &State) -> bool {
        state.all_done()
    }

    fn title(&self) -> String {
        trace::title(self)
    }

    fn line(&self, event: Event, after: &State) -> String {
        trace::line(self, event, after)
    }
}

fn backend_steps(moves: &mut Moves, actor: usize) {
    let before = moves.out.len();
    match moves.from.backends[actor].at {
        Phase::Run => run_steps(moves, actor),
        Phase::Lookup
        | Phase::Snapshot
        | Phase::Row
        | Phase::Fill
        | Phase::FillHalf
        | Phase::MakeSlot => {
            cache_get::continue_get(moves, actor);
        }
        Phase::Resume => row_changes::finish_resume(moves, actor),
        Phase::Unmark | Phase::UnmarkHalf => end::unmark_steps(moves, actor),
        Phase::Release => end::release_steps(moves, actor),
        Phase::Done => {}
    }
    let waits = moves.out.len() == before;
    end::abort_steps(moves, actor, waits);
}

fn run_steps(moves: &mut Moves, actor: usize) {
    let backend = &moves.from.backends[actor];
    if moves.m.committing(actor, backend.pc) && end::mark_steps(moves, actor) {
        return;
    }
    match moves.m.op(actor, backend.pc) {
        None => end::commit_step(moves, actor),
        Some(Op::Get(key)) => cache_get::start_get(moves, actor, key),
        Some(Op::Select(key)) => cache_get::select(moves, actor, key),
        Some(op) => row_changes::write_step(moves, actor, op),
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
