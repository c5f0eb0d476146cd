//! The framework of the models of leases, prepared transactions, promotion and tracking. A model is a set of actors,
//! and each step of the model is one atomic step of one actor.

use std::fmt;
use std::hash::Hash;

use crate::search::Machine;

/// A step in the trace: the index of the actor, and its action.
pub type Event = (usize, &'static str);

/// A state of a model that holds one backend for each actor.
pub trait Backends: Copy + Eq + Hash {
    type Phase: Copy + Eq;
    type Backend: Copy + Default;
    const DONE: Self::Phase;

    fn backends(&self) -> &[Self::Backend];
    fn backends_mut(&mut self) -> &mut [Self::Backend];
    fn at(backend: &mut Self::Backend) -> &mut Self::Phase;
}

/// Implements [`Backends`] for the `State`, `Backend` and `Phase` of a model.
macro_rules! backends {
    () => {
        impl crate::actors::Backends for State {
            type Phase = Phase;
            type Backend = Backend;
            const DONE: Phase = Phase::Done;

            fn backends(&self) -> &[Backend] {
                &self.backends
            }

            fn backends_mut(&mut self) -> &mut [Backend] {
                &mut self.backends
            }

            fn at(backend: &mut Backend) -> &mut Phase {
                &mut backend.at
            }
        }
    };
}
pub(crate) use backends;

/// A model of actors.
pub trait Actors: Sized {
    type State: Backends;
    type Violation: Copy + fmt::Debug;
    const STUCK: Self::Violation;

    /// Returns the number of actors. The surroundings (such as a restart) have the index after the last actor's.
    fn count(&self) -> usize;
    fn first(&self) -> Self::State;
    /// Adds the steps of the actor `moves.actor`.
    fn step(moves: &mut Moves<Self>);
    /// Adds the steps of the surroundings.
    fn surroundings(_: &mut Moves<Self>) {}
    fn judge(&self, state: &Self::State) -> Option<Self::Violation>;

    fn all_done(&self, state: &Self::State) -> bool {
        let mut backends = state.backends().iter().copied();
        backends.all(|mut backend| *Self::State::at(&mut backend) == Self::State::DONE)
    }

    fn title(&self) -> String;
    /// Names an actor, or the surroundings.
    fn name(&self, actor: usize) -> String;
    /// Describes a state, for the end of a line in a trace.
    fn describe(&self, state: &Self::State) -> String;
}

/// Collects the successors of one state.
pub struct Moves<'a, M: Actors> {
    pub m: &'a M,
    pub from: &'a M::State,
    pub actor: usize,
    pub out: &'a mut Vec<(Event, M::State)>,
}

type Backend<M> = <<M as Actors>::State as Backends>::Backend;
type Phase<M> = <<M as Actors>::State as Backends>::Phase;

impl<M: Actors> Moves<'_, M> {
    /// Adds a step that takes the actor to its phase `at`. Resets the state of an actor that has ended, so that equal
    /// states compare equal.
    pub fn add(
        &mut self,
        verb: &'static str,
        at: Phase<M>,
        change: impl FnOnce(&mut M::State, &mut Backend<M>),
    ) {
        let mut state = *self.from;
        let mut backend = self.me();
        *M::State::at(&mut backend) = at;
        change(&mut state, &mut backend);
        if at == M::State::DONE {
            backend = Backend::<M>::default();
            *M::State::at(&mut backend) = at;
        }
        state.backends_mut()[self.actor] = backend;
        self.out.push(((self.actor, verb), state));
    }

    /// Adds a step of the surroundings.
    pub fn goes(&mut self, verb: &'static str, change: impl FnOnce(&mut M::State)) {
        let mut state = *self.from;
        change(&mut state);
        self.out.push(((self.actor, verb), state));
    }

    pub fn me(&self) -> Backend<M> {
        self.from.backends()[self.actor]
    }

    pub fn others(&self) -> impl Iterator<Item = &Backend<M>> {
        let me = self.actor;
        let backends = self.from.backends().iter().enumerate();
        backends.filter_map(move |(actor, backend)| (actor != me).then_some(backend))
    }
}

impl<M: Actors> Machine for M {
    type State = M::State;
    type Event = Event;
    type Violation = M::Violation;
    const STUCK: M::Violation = M::STUCK;

    fn first(&self) -> M::State {
        let mut state = Actors::first(self);
        for backend in &mut state.backends_mut()[self.count()..] {
            *M::State::at(backend) = M::State::DONE;
        }
        state
    }

    fn successors(&self, from: &M::State, out: &mut Vec<(Event, M::State)>) {
        out.clear();
        let mut moves = Moves {
            m: self,
            from,
            actor: 0,
            out,
        };
        while moves.actor < self.count() {
            M::step(&mut moves);
            moves.actor += 1;
        }
        M::surroundings(&mut moves);
    }

    fn judge(&self, state: &M::State) -> Option<M::Violation> {
        Actors::judge(self, state)
    }

    fn all_done(&self, state: &M::State) -> bool {
        Actors::all_done(self, state)
    }

    fn title(&self) -> String {
        Actors::title(self)
    }

    fn line(&self, (actor, verb): Event, after: &M::State) -> String {
        let step = format!("{} {verb}", self.name(actor));
        format!("{step:<60} | {}", self.describe(after))
    }
}
