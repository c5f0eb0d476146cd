//! The model of prepared transactions: its configurations, its clauses, and its state.

use super::lowering::restarted;
use crate::actors::{Actors, backends};
use crate::clauses::clauses;

/// The largest number of actors in a configuration.
pub const MAX_ACTORS: usize = 4;
/// The number of rows; both keys are on the same stripe.
pub const KEYS: usize = 2;

clauses! {
    Model:
    /// PREPARE removes no mark.
    MarksStand,
    /// PREPARE removes no fence.
    FenceStands,
    /// Marks that find no room in the record become one mark on the whole cache.
    OverflowStands,
    /// The commit log does not decide whether a transaction has ended.
    ChecksProgressNotLog,
    /// The list of prepared transactions does not decide whether a transaction has ended either.
    ChecksProgressNotList,
    /// A process claims a record before it undoes the record's marks.
    LoweringClaims,
    /// The abort of a session that has not finished its PREPARE also claims the record.
    AbortClaims,
    /// Leases are voided before fences are removed.
    VoidBeforeFence,
    /// The slot of a dropped cache is freed if the transaction was committed.
    DropFreesSlot,
    /// The snapshot that reads the row is taken after the check whether the transaction is decided.
    SnapshotAfterQuestion,
    /// No lease of a session is granted while any writer pends.
    NoLeaseWhilePending,
    /// A session that stores without a lease has no token while a writer pends.
    NoStoreWhilePending,
    /// After a restart a recovered transaction is recognised by the locks that it still holds, because its marks in
    /// shared memory are lost.
    RestartSuspends,
}

/// The kind of change that the prepared transaction makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Row,
    /// More rows than the record has room for.
    ManyRows,
    DropsTheCache,
}

/// How a fetcher stores, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetcherKind {
    Leased,
    Untracked,
    /// A client's lease for an entry of a memory cache.
    Memory,
}

/// An actor of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Actor {
    Preparer(Change),
    /// COMMIT PREPARED or ROLLBACK PREPARED, by any session.
    Finisher,
    /// An ordinary transaction that writes key 1.
    Writer,
    Reader(usize),
    Fetcher(FetcherKind),
}

/// A configuration: its actors, whether the server may restart, and the clauses that it leaves out.
#[derive(Clone, Debug)]
pub struct Model {
    pub name: &'static str,
    pub actors: Vec<Actor>,
    /// Whether the server may be restarted once.
    pub restarts: bool,
    dropped: Dropped,
}

impl Model {
    pub fn new(name: &'static str, actors: &[Actor]) -> Model {
        assert!(actors.len() <= MAX_ACTORS);
        Model {
            name,
            actors: actors.to_vec(),
            restarts: false,
            dropped: Dropped::default(),
        }
    }

    pub fn with_a_restart(mut self) -> Model {
        self.restarts = true;
        self
    }
}

/// Returns every configuration. The tests visit each completely, with and without a restart.
pub fn all() -> Vec<Model> {
    use Actor::{Fetcher, Finisher, Preparer, Reader, Writer};
    let mut models = Vec::new();
    for change in [Change::Row, Change::ManyRows, Change::DropsTheCache] {
        let both = [Preparer(change), Finisher];
        let with = |more: &[Actor]| [&both, more].concat();
        models.push(Model::new("a reader", &with(&[Reader(0)])));
        models.push(Model::new("two readers", &with(&[Reader(0), Reader(0)])));
        models.push(Model::new(
            "a neighbour's reader",
            &with(&[Writer, Reader(1)]),
        ));
        if change == Change::DropsTheCache {
            continue;
        }
        for kind in [
            FetcherKind::Leased,
            FetcherKind::Untracked,
            FetcherKind::Memory,
        ] {
            models.push(Model::new("a fetcher", &with(&[Fetcher(kind)])));
            models.push(Model::new(
                "a fetcher and a reader",
                &with(&[Fetcher(kind), Reader(0)]),
            ));
            models.push(Model::new(
                "two fetchers",
                &with(&[Fetcher(kind), Fetcher(kind)]),
            ));
        }
    }
    let restarted: Vec<Model> = models
        .iter()
        .map(|model| model.clone().with_a_restart())
        .collect();
    models.extend(restarted);
    models
}

/// `ver` and `pending_writers` of a stripe or a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Counters {
    pub ver: u8,
    pub pending_writers: i8,
}

/// The record in shared memory that holds the marks of the prepared transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Record {
    #[default]
    Free,
    Standing,
    /// A process has claimed the record and undoes its marks.
    Lowering,
}

/// The marks in the record, or the session's marks before the record exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Marks {
    pub key: bool,
    pub fence: bool,
    /// Whether the whole cache is marked, because of a DROP or an overflow.
    pub slot: bool,
}

/// The prepared transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Transaction {
    pub in_progress: bool,
    pub listed: bool,
    pub in_log: bool,
    pub committed: bool,
    pub ended: bool,
    /// Whether the transaction has removed the committed row that depends on key 0. The row then stays locked.
    pub removes: bool,
}

/// The lease record of an entry. A number is the actor that holds the lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Lease {
    #[default]
    Free,
    Computing(u8),
    Stored(u8),
    StoredVoid(u8),
}

/// The position of an actor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Phase {
    #[default]
    Begin,
    // the prepared transaction, and the ordinary writer
    Marking,
    Fencing,
    Removing,
    Overflowing,
    Preparing,
    Committing,
    Unmarking,
    // the session that decides
    Logged,
    Visible,
    // a process that lowers, and continues at `then`
    Claiming,
    LoweringKey,
    LoweringFence,
    LoweringSlot,
    Freeing,
    // a reader
    Requesting,
    Reading,
    Filling,
    // a fetcher
    Storing,
    Checking,
    Committed,
    Done,
}

/// The state of one actor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Backend {
    pub at: Phase,
    /// The phase in which the actor continues after it has undone a record.
    pub then: Phase,
    /// Whether the actor has already found the transaction decided, and turned to undo the record.
    pub has_checked: bool,
    pub snapshot: Option<u8>,
    pub read: u8,
    pub row: Option<u8>,
    pub token: [u8; 2],
}

/// The slot of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Slot {
    pub there: bool,
    pub words: Counters,
    /// Whether the cache is unverified: since a restart, no process has found that no recovered transaction holds its
    /// lock.
    pub unproven: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The visible rows.
    pub rows: [u8; KEYS],
    pub relation_gone: bool,
    /// The copies, each with the version of the slot under which it was filled.
    pub entries: [Option<(u8, u8)>; KEYS],
    pub stripe: Counters,
    pub slot: Slot,
    pub fences: i8,
    pub dependent: Option<u8>,
    pub memory: Option<u8>,
    pub lease: Lease,
    pub record: Record,
    pub marks: Marks,
    pub transaction: Transaction,
    pub restarted: bool,
    pub backends: [Backend; MAX_ACTORS],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A get would hit a copy that is not the visible row.
    StaleCopy,
    /// After all actors have ended, an entry that depends on a row was made from a different version of the row.
    StaleForGood,
    /// A mark was undone more often than it was set.
    UndoneTwice,
    /// After all actors have ended, a mark, fence, lease or slot remains.
    LeftBehind,
    /// No actor can take a step.
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
            rows: [0; KEYS],
            relation_gone: false,
            entries: [Some((0, 0)); KEYS],
            stripe: Counters::default(),
            slot: Slot {
                there: true,
                ..Slot::default()
            },
            fences: 0,
            dependent: None,
            memory: None,
            lease: Lease::Free,
            record: Record::Free,
            marks: Marks::default(),
            transaction: Transaction {
                in_progress: true,
                ..Transaction::default()
            },
            restarted: false,
            backends: [Backend::default(); MAX_ACTORS],
        }
    }

    fn step(moves: &mut Moves) {
        match moves.m.actors[moves.actor] {
            _ if moves.lowers() => {}
            Actor::Preparer(change) => moves.preparer(change),
            Actor::Finisher => moves.finisher(),
            Actor::Writer => moves.writer(),
            Actor::Reader(key) => moves.reader(key),
            Actor::Fetcher(kind) => moves.fetcher(kind),
        }
    }

    fn surroundings(moves: &mut Moves) {
        let (m, from) = (moves.m, moves.from);
        if m.restarts && !from.restarted && !m.all_done(from) {
            moves.goes("is restarted", |state| *state = restarted(m, from));
        }
    }

    fn judge(&self, state: &State) -> Option<Violation> {
        let valid = |entry: &(u8, u8)| state.slot.there && entry.1 == state.slot.words.ver;
        let mut copies = state.entries.iter().zip(state.rows);
        if copies.any(|(entry, row)| entry.is_some_and(|entry| valid(&entry) && entry.0 != row)) {
            return Some(Violation::StaleCopy);
        }
        let pending = [
            state.stripe.pending_writers,
            state.slot.words.pending_writers,
            state.fences,
        ];
        if pending.iter().any(|&pending| pending < 0) {
            return Some(Violation::UndoneTwice);
        }
        if !self.all_done(state) {
            return None;
        }
        let made_of_it = |value: Option<u8>| value.is_none_or(|value| value == state.rows[0]);
        if !made_of_it(state.dependent) || !made_of_it(state.memory) {
            return Some(Violation::StaleForGood);
        }
        let left = pending.iter().any(|&pending| pending != 0)
            || state.lease != Lease::Free
            || state.record != Record::Free
            || state.relation_gone && state.slot.there && !state.restarted;
        left.then_some(Violation::LeftBehind)
    }

    fn title(&self) -> String {
        format!(
            "{}, {:?}, restarts {}",
            self.name, self.actors, self.restarts
        )
    }

    fn name(&self, actor: usize) -> String {
        match self.actors.get(actor) {
            Some(kind) => format!("{actor} {kind:?}"),
            None => "the server".into(),
        }
    }

    fn describe(&self, state: &State) -> String {
        format!(
            "rows {:?} copies {:?} | stripe v{} p{} slot v{} p{} | fences {} | {:?} {:?} | {:?} {:?}",
            state.rows,
            state.entries,
            state.stripe.ver,
            state.stripe.pending_writers,
            state.slot.words.ver,
            state.slot.words.pending_writers,
            state.fences,
            state.record,
            state.lease,
            state.dependent,
            state.memory,
        )
    }
}
