//! The model of promotion: its configurations, its clauses, and its state.

use crate::actors::{Actors, backends};
use crate::clauses::clauses;

/// The largest number of actors in a configuration.
pub const MAX_ACTORS: usize = 5;

clauses! {
    Model:
    StandbyStoresNothing,
    LoadCarriesRecovery,
    OpenerDrops,
    DropBeforeOpen,
    FrontChecks,
    KeepsIndependent,
    MarkVoids,
}

/// An actor of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Actor {
    /// Replays a change of the source, if the server is still in recovery.
    Replay,
    Promoter,
    /// Loads the value from the source and stores it: `cache_fetch`, or a client with a lease.
    Fetcher,
    /// `cache_set` of a value that the caller has read from the source.
    Setter,
    /// Changes the source on the new primary.
    Writer,
    /// Reads, as an SQL function or an executor does.
    Reader,
    /// Reads, as a network process does.
    Front,
}

/// A configuration: its actors, whether the cache depends on the source, and the clauses that it leaves out.
#[derive(Clone, Debug)]
pub struct Model {
    pub actors: Vec<Actor>,
    /// Whether entries of the cache depend on the source.
    pub depends: bool,
    dropped: Dropped,
}

impl Model {
    pub fn new(actors: &[Actor], depends: bool) -> Model {
        assert!(actors.len() <= MAX_ACTORS);
        Model {
            actors: actors.to_vec(),
            depends,
            dropped: Dropped::default(),
        }
    }
}

/// Returns every configuration; the tests visit each completely.
pub fn all() -> Vec<Model> {
    use Actor::{Fetcher, Front, Promoter, Reader, Replay, Setter, Writer};
    let mut models = Vec::new();
    for depends in [false, true] {
        for store in [Fetcher, Setter] {
            for read in [Reader, Front] {
                models.push(Model::new(
                    &[Replay, Promoter, store, read, Fetcher],
                    depends,
                ));
                models.push(Model::new(&[Replay, Promoter, store, read, Front], depends));
                models.push(Model::new(
                    &[Promoter, store, read, Writer, Reader],
                    depends,
                ));
            }
        }
    }
    models
}

/// The position of an actor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Phase {
    #[default]
    Begin,
    Opening,
    Looking,
    Reading,
    Storing,
    Committing,
    Unmarking,
    Done,
}

/// The entry of the memory cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// The version of the source that the entry was made from.
    pub made_of: u8,
    pub by_fetch: bool,
    /// Whether the entry was stored during recovery.
    pub in_recovery: bool,
}

/// The state of one actor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Backend {
    pub at: Phase,
    /// Whether the server was in recovery when the read or load began.
    pub in_recovery: bool,
    /// The source's version when the read began.
    pub oldest: u8,
    /// The source's version that the read loaded.
    pub read: u8,
    /// Whether a load's lease or watch is still valid.
    pub holds: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub in_recovery: bool,
    pub source: u8,
    pub entry: Option<Entry>,
    /// Whether the slot was taken during recovery and not opened afterwards.
    pub recovered: bool,
    /// The number of marks on the key.
    pub marks: u8,
    /// Whether an entry without dependencies was set. If so, the entry must exist.
    pub is_set: bool,
    pub backends: [Backend; MAX_ACTORS],
    pub broken: Option<Violation>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Violation {
    /// A read showed a value whose source had changed before the read began.
    Stale,
    /// An entry without dependencies is gone.
    Lost,
    LeftBehind,
    Stuck,
}

pub type Moves<'a> = crate::actors::Moves<'a, Model>;

backends!();

impl Actors for Model {
    type State = State;
    type Violation = Violation;
    const STUCK: Violation = Violation::Stuck;

    fn count(&self) -> usize {
        self.actors.len()
    }

    fn first(&self) -> State {
        State {
            in_recovery: true,
            source: 0,
            entry: None,
            recovered: true,
            marks: 0,
            is_set: false,
            backends: [Backend::default(); MAX_ACTORS],
            broken: None,
        }
    }

    fn step(moves: &mut Moves) {
        match moves.m.actors[moves.actor] {
            Actor::Replay => moves.replay(),
            Actor::Promoter => moves.promote(),
            Actor::Writer => moves.write(),
            kind => moves.call(kind),
        }
    }

    fn judge(&self, state: &State) -> Option<Violation> {
        let lost = !self.depends && state.is_set && state.entry.is_none();
        match state.broken {
            Some(violation) => Some(violation),
            None if lost => Some(Violation::Lost),
            None if self.all_done(state) && state.marks > 0 => Some(Violation::LeftBehind),
            None => None,
        }
    }

    fn title(&self) -> String {
        format!("{:?}, depends {}", self.actors, self.depends)
    }

    fn name(&self, actor: usize) -> String {
        format!("{actor} {:?}", self.actors[actor])
    }

    fn describe(&self, state: &State) -> String {
        format!(
            "{} source {} | {:?}{} | marks {}",
            if state.in_recovery {
                "recovery,"
            } else {
                "primary,"
            },
            state.source,
            state.entry,
            if state.recovered { ", not opened" } else { "" },
            state.marks
        )
    }
}
