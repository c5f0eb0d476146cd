//! The model of client-side caching: its configurations, its clauses, and its state.

use crate::actors::{Actors, backends};
use crate::clauses::clauses;

pub const KEYS: usize = 2;
/// The largest number of actors in a configuration, besides the client and its network process.
pub const MAX_ACTORS: usize = 3;
/// The number of records that the ring keeps.
pub const RING: usize = 2;
/// The largest number of messages and replies on the way to the client.
pub const LINE: usize = 8;

// The header of `tracking` explains each clause.
clauses! {
    Model:
    RegistersBeforeRead,
    NotedBeforeRead,
    ChecksAfterVisible,
    RecordedAfterVisible,
    RecordedBeforeUnmark,
    RecordedBeforeAck,
    BackWaits,
    DrainedBeforeReply,
    SentAgain,
    LostInvalidatesAll,
    RollbackSilent,
    SavepointSilent,
    RecordInvalidates,
    FinisherWaits,
    UnprovenOwes,
}

/// The changes of a transaction, and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Changes both rows.
    Rows,
    /// Changes both rows, and invalidates the whole cache: TRUNCATE, or too many keys.
    Whole,
    /// Changes both rows, the second after a savepoint that is rolled back.
    Savepoint,
    /// Changes both rows, and is rolled back.
    RolledBack,
    /// Changes both rows, and is prepared.
    Prepared,
}

/// An actor of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Actor {
    Writer(Change),
    /// Commits the prepared transaction.
    Finisher,
    /// A process that finds the record's transaction decided, and undoes the record.
    Lowerer,
    /// Reads a row through SQL, and makes a copy of it in the hot tier.
    Filler(usize),
}

/// A request of the client. The client sends one request after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    Read(usize),
    /// A request that reads no entry.
    Ping,
}

/// A configuration: its actors, the client's requests, its first state, and the clauses that it leaves out.
#[derive(Clone, Debug)]
pub struct Model {
    pub name: &'static str,
    pub actors: Vec<Actor>,
    pub script: &'static [Request],
    /// Whether, in the first state, the client has read both keys, and the hot tier has copies of them.
    pub warm: bool,
    /// Whether a transaction that has changed both rows was prepared before a restart.
    pub recovered: bool,
    dropped: Dropped,
}

impl Model {
    pub fn new(name: &'static str, actors: &[Actor], script: &'static [Request]) -> Model {
        assert!(actors.len() <= MAX_ACTORS);
        Model {
            name,
            actors: actors.to_vec(),
            script,
            warm: false,
            recovered: false,
            dropped: Dropped::default(),
        }
    }

    pub fn warm(mut self) -> Model {
        self.warm = true;
        self
    }

    pub fn recovered(mut self) -> Model {
        self.recovered = true;
        self
    }

    /// Returns whether every transaction that changes one of the rows and commits changes both.
    fn changes_together(&self) -> bool {
        !self.actors.contains(&Actor::Writer(Change::Savepoint))
    }
}

/// Returns every configuration in which the promises must hold.
pub fn all() -> Vec<Model> {
    use Actor::{Filler, Finisher, Lowerer, Writer};
    use Change::{Prepared, RolledBack, Rows, Savepoint, Whole};
    use Request::{Ping, Read};
    const SCRIPTS: &[&[Request]] = &[
        &[Read(0)],
        &[Ping],
        &[Read(0), Read(1)],
        &[Read(1), Read(1), Ping],
        &[Read(0), Ping, Read(1)],
    ];
    const ACTORS: &[&[Actor]] = &[
        &[Writer(Rows)],
        &[Writer(Whole), Filler(0)],
        &[Writer(Savepoint), Filler(1)],
        &[Writer(RolledBack), Filler(0)],
        &[Writer(Rows), Filler(0)],
        &[Writer(Rows), Filler(0), Filler(1)],
        &[Writer(Rows), Writer(Whole)],
        &[Writer(Rows), Writer(Rows), Filler(0)],
        &[Writer(Rows), Writer(RolledBack), Filler(0)],
        &[Writer(Prepared), Finisher],
        &[Writer(Prepared), Finisher, Lowerer],
        &[Writer(Prepared), Finisher, Filler(0)],
    ];
    let mut models = Vec::new();
    for script in SCRIPTS {
        for actors in ACTORS {
            models.push(Model::new("a cold client", actors, script));
            models.push(Model::new("a warm client", actors, script).warm());
        }
        models.push(Model::new("after a restart", &[Finisher], script).recovered());
        models.push(Model::new("after a restart", &[Finisher, Filler(0)], script).recovered());
    }
    models
}

/// A record of a change in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Invalidation {
    #[default]
    Nothing,
    Key(usize),
    All,
}

/// A message on its way to the client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    Changed(Invalidation),
    Value(usize, u8),
    /// The reply to a ping, with the rows that had been acknowledged when the ping was sent.
    Pong([u8; KEYS]),
}

/// The position of an actor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Phase {
    #[default]
    Begin,
    Marking,
    Showing,
    Recording,
    Unmarking,
    Answering,
    // a process that lowers
    Claiming,
    Freeing,
    // a filler
    Reading,
    Filling,
    Done,
}

/// The state of one actor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Backend {
    pub at: Phase,
    /// Whether a reader is registered; None if the writer has not checked yet.
    pub registered: Option<bool>,
    /// The number of records that the writer has written.
    pub recorded: u8,
    pub token: Option<u8>,
    pub read: u8,
}

/// The record of the prepared transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Record {
    #[default]
    None,
    Standing,
    Claimed,
    Freed,
}

/// The progress of the network process, or of an executor for it, with the client's request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Serving {
    #[default]
    Nothing,
    Noting(usize),
    Looking(usize),
    /// The executor has the read, and a token if one was available.
    Handed(usize, Option<u8>),
    Waiting(usize, u8, Option<u8>),
    Answered(usize, u8),
    Drained(usize, u8),
    Pinged([u8; KEYS]),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub rows: [u8; KEYS],
    pub acknowledged: [u8; KEYS],
    pub copies: [Option<u8>; KEYS],
    pub ver: u8,
    pub pending_writers: u8,
    /// The number of writers that are visible and have not recorded all of their changes.
    pub unrecorded: u8,
    pub record: Record,
    pub decided: bool,
    pub unproven: bool,
    pub registered: bool,
    pub noted: [bool; KEYS],
    pub ring: [Invalidation; RING],
    pub head: u8,
    pub tail: u8,
    pub serving: Serving,
    /// The keys that were invalidated during the current read.
    pub passed: [bool; KEYS],
    pub owed: bool,
    pub line: [Option<Message>; LINE],
    pub kept: [Option<u8>; KEYS],
    pub sent: u8,
    pub backends: [Backend; MAX_ACTORS],
    pub broken: Option<Violation>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Violation {
    /// After all actors have ended, the client keeps a value that differs from the row.
    StaleForGood,
    /// The client has received a reply, and keeps a value whose change had been acknowledged before it sent the
    /// request.
    StaleAfterReply,
    /// The client has read a new value, and still keeps an old value that the same transaction has replaced.
    OldBesideNew,
    /// A key was invalidated although no visible change occurred.
    InvalidatedForNothing,
    /// No actor can take a step.
    Stuck,
}

impl Model {
    /// Delivers the next message to the client, and checks the values that the client then keeps.
    pub fn receive(&self, state: &mut State, message: Message) {
        match message {
            Message::Changed(Invalidation::Key(key)) => state.kept[key] = None,
            Message::Changed(_) => state.kept = [None; KEYS],
            Message::Value(key, value) => {
                let older = |other: &Option<u8>| other.is_some_and(|other| other < value);
                if self.changes_together() && older(&state.kept[KEYS - 1 - key]) {
                    state.broken = Some(Violation::OldBesideNew);
                }
                state.kept[key] = Some(value);
            }
            Message::Pong(acknowledged) => {
                let mut kept = state.kept.iter().zip(acknowledged);
                if kept.any(|(kept, least)| kept.is_some_and(|kept| kept < least)) {
                    state.broken = Some(Violation::StaleAfterReply);
                }
            }
        }
    }
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
            rows: [0; KEYS],
            acknowledged: [0; KEYS],
            copies: [self.warm.then_some(0); KEYS],
            ver: 0,
            pending_writers: 0,
            unrecorded: 0,
            record: Record::None,
            decided: false,
            unproven: self.recovered,
            registered: self.warm,
            noted: [self.warm; KEYS],
            ring: [Invalidation::Nothing; RING],
            head: 0,
            tail: 0,
            serving: Serving::Nothing,
            passed: [false; KEYS],
            owed: false,
            line: [None; LINE],
            kept: [self.warm.then_some(0); KEYS],
            sent: 0,
            backends: [Backend::default(); MAX_ACTORS],
            broken: None,
        }
    }

    fn step(moves: &mut Moves) {
        match moves.m.actors[moves.actor] {
            Actor::Writer(change) => moves.writer(change),
            Actor::Finisher => moves.finisher(),
            Actor::Lowerer => moves.lowerer(),
            Actor::Filler(key) => moves.filler(key),
        }
    }

    fn surroundings(moves: &mut Moves) {
        moves.front();
    }

    fn judge(&self, state: &State) -> Option<Violation> {
        let kept = || state.kept.iter().zip(state.rows);
        let is_old = || kept().any(|(kept, row)| kept.is_some_and(|kept| kept != row));
        let at_the_end = || self.all_done(state) && is_old();
        state
            .broken
            .or_else(|| at_the_end().then_some(Violation::StaleForGood))
    }

    fn all_done(&self, state: &State) -> bool {
        state
            .backends
            .iter()
            .all(|backend| backend.at == Phase::Done)
            && state.sent as usize == self.script.len()
            && state.serving == Serving::Nothing
            && state.head == state.tail
            && state.line[0].is_none()
    }

    fn title(&self) -> String {
        format!("{}, {:?}, {:?}", self.name, self.actors, self.script)
    }

    fn name(&self, actor: usize) -> String {
        match self.actors.get(actor) {
            Some(kind) => format!("{actor} {kind:?}"),
            None => "the front".into(),
        }
    }

    fn describe(&self, state: &State) -> String {
        format!(
            "rows {:?} copies {:?} p{} | noted {:?} ring {}..{} {:?} | keeps {:?}",
            state.rows,
            state.copies,
            state.pending_writers,
            state.noted,
            state.tail,
            state.head,
            state.serving,
            state.kept,
        )
    }
}
