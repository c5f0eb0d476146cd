//! Configurations, clauses and the state of the model of leases.

use crate::actors::{Actors, backends};
use crate::clauses::clauses;

/// Actors that a configuration has at most.
pub const MAX_ACTORS: usize = 3;

clauses! {
    Model:
    /// No lease, and no watch, while a mark on the key stands.
    AskMark,
    /// A mark is on the key, not on all keys of its stripe.
    MarksByKey,
    /// Nor while a writer of the whole cache pends.
    AskCachePend,
    /// Nor while one without a slot holds the cache's lock.
    AskLock,
    /// Which is asked once the record exists.
    AskLockAfter,
    /// It is the cache's own.
    LockByCache,
    /// A writer that changes another cache as a whole voids nothing here.
    VoidsByCache,
    /// A mark voids leases.
    MarkVoids,
    /// Of a whole cache, `pending_writers` rises before they are voided.
    PendBeforeVoid,
    /// Marks come before the removal of the row.
    MarkBeforeRemoval,
    /// The removal waits for the transaction of a row that it cannot see.
    RemovalWaits,
    /// A fetcher asks for its lease after it has written the row.
    StoreAsksAfter,
    /// So does a fetcher without a lease for its watch.
    WatchAsksAfter,
    /// A mark voids watches.
    MarkVoidsWatches,
    /// A watch begins before the snapshot that reads the source.
    WatchBeforeSnapshot,
    /// Under REPEATABLE READ only what the latest snapshot would have read is stored.
    OldSnapshotStoresNothing,
    /// A client's lease does not come back from a rolled back store if it was voided meanwhile.
    TakenBackUnlessVoid,
    /// A delete that has found no row looks again under its mark.
    DeleteLooksAgain,
    /// And waits for the transaction of a row that it cannot see.
    DeleteWaits,
    /// A fetcher that stores says so before the row is written.
    StoreAnnounced,
    /// A store that has begun and ended since the first look counts, too.
    DeleteCountsBegun,
}

/// What a writer marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkScope {
    Key,
    Cache,
    /// The whole cache, which has no slot: by a lock.
    NoSlot,
}

/// How a fetcher stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetcherKind {
    Leased,
    /// Records or this session's leases are used up: a watch takes the lease's place.
    Untracked,
    /// The snapshot was taken long before.
    RepeatableRead,
    /// `cache_set_leased`: the lease survives a rolled back store, which is tried again.
    Client,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Actor {
    Writer(MarkScope),
    /// Has changed the source, on which nothing depends, and deletes the entry in a transaction of its own.
    Deleter,
    /// A writer of another cache, with a key on the same stripe.
    Neighbour(MarkScope),
    Fetcher(FetcherKind),
}

#[derive(Clone, Debug)]
pub struct Model {
    pub name: &'static str,
    pub actors: Vec<Actor>,
    /// There is a row at first, and it has expired: a miss for all.
    pub expired_row: bool,
    dropped: Dropped,
}

impl Model {
    pub fn new(name: &'static str, actors: &[Actor]) -> Model {
        assert!(actors.len() <= MAX_ACTORS);
        Model {
            name,
            actors: actors.to_vec(),
            expired_row: false,
            dropped: Dropped::default(),
        }
    }

    pub fn over_an_expired_row(mut self) -> Model {
        self.expired_row = true;
        self
    }

    /// Whether only a single fetcher has to do with the key and its cache.
    pub fn is_alone(&self) -> bool {
        let owns = |actor: &&Actor| !matches!(actor, Actor::Neighbour(_));
        self.actors.iter().filter(owns).count() == 1
    }
}

/// Every configuration; each is visited whole.
pub fn all() -> Vec<Model> {
    use Actor::{Deleter, Fetcher, Neighbour, Writer};
    let mut models = Vec::new();
    for scope in [MarkScope::Key, MarkScope::Cache, MarkScope::NoSlot] {
        for kind in [
            FetcherKind::Leased,
            FetcherKind::Untracked,
            FetcherKind::RepeatableRead,
            FetcherKind::Client,
        ] {
            let two = [Writer(scope), Fetcher(kind)];
            models.push(Model::new("a writer and a fetcher", &two));
            models.push(Model::new("over an expired row", &two).over_an_expired_row());
            for other in [FetcherKind::Leased, FetcherKind::Untracked] {
                let three = [Writer(scope), Fetcher(kind), Fetcher(other)];
                models.push(Model::new("a writer and two fetchers", &three));
            }
            let three = [Writer(scope), Writer(MarkScope::Key), Fetcher(kind)];
            models.push(Model::new("two writers and a fetcher", &three));
            let alone = [Neighbour(scope), Neighbour(MarkScope::Key), Fetcher(kind)];
            models.push(Model::new("another cache's writers and a fetcher", &alone));
        }
    }
    for kind in [
        FetcherKind::Leased,
        FetcherKind::Untracked,
        FetcherKind::RepeatableRead,
        FetcherKind::Client,
    ] {
        let two = [Deleter, Fetcher(kind)];
        models.push(Model::new("a delete and a fetcher", &two));
        models.push(Model::new("a delete over an expired row", &two).over_an_expired_row());
        for other in [
            Fetcher(FetcherKind::Leased),
            Fetcher(FetcherKind::Untracked),
            Writer(MarkScope::Key),
            Deleter,
        ] {
            let three = [Deleter, Fetcher(kind), other];
            models.push(Model::new("a delete, a fetcher and another", &three));
        }
    }
    models
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Lease {
    #[default]
    Free,
    Computing(u8),
    Stored(u8),
    StoredVoid(u8),
}

/// A row and the source's version that it was made of.
pub type Row = Option<u8>;

/// Where an actor stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Phase {
    #[default]
    Begin,
    // a writer
    Marking,
    Voiding,
    Removing,
    LateMarking,
    LateVoiding,
    Looking,
    LookingAgain,
    Committing,
    Unmarking,
    Unvoiding,
    // a fetcher
    EarlyLock,
    Asking,
    AskingLock,
    Reading,
    LateWatch,
    LateLock,
    EarlyCheck,
    Announcing,
    Storing,
    Checking,
    OwnMark,
    OwnCommit,
    OwnUnmark,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Backend {
    pub at: Phase,
    /// A writer has removed the committed row.
    pub has_removed: bool,
    /// A fetcher has won the lease.
    pub has_lease: bool,
    pub marked: bool,
    pub aborting: bool,
    /// A client has had its store rolled back once.
    pub again: bool,
    /// The source as its snapshot shows it, and what it has read of it.
    pub snapshot: u8,
    pub read: u8,
    /// The row that it has written and not committed.
    pub row: Row,
    /// Nothing has voided its watch.
    pub watches: bool,
    /// It has said that it stores.
    pub announced: bool,
    /// Stores that had begun, and whether any was open, when a delete looked first.
    pub begun: u8,
    pub open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The source's committed version; each writer makes a new one.
    pub source: u8,
    pub row: Row,
    /// Writers between mark and unmark: of the key, of the cache, and those that hold its lock.
    pub pending: [u8; 3],
    /// The same of another cache, with a key on the same stripe.
    pub others: [u8; 3],
    pub lease: Lease,
    /// Stores that have been announced, and those of them that have not ended.
    pub begun: u8,
    pub open: u8,
    /// A fetcher was refused, or its lease or watch voided, by a writer of another cache.
    pub pays: bool,
    pub backends: [Backend; MAX_ACTORS],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// After all have ended the entry is not what the source holds.
    StaleForGood,
    /// After all have ended somebody's mark or lease is there.
    LeftBehind,
    /// A fetcher stores nothing although no writer has changed its key or its cache.
    PaysForAnother,
    /// Nobody can go on.
    Stuck,
}

/// Of an entry that had expired.
pub const EXPIRED: u8 = u8::MAX;

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
            source: 0,
            row: self.expired_row.then_some(EXPIRED),
            pending: [0; 3],
            others: [0; 3],
            lease: Lease::Free,
            begun: 0,
            open: 0,
            pays: false,
            backends: [Backend::default(); MAX_ACTORS],
        }
    }

    fn step(moves: &mut Moves) {
        match moves.m.actors[moves.actor] {
            Actor::Writer(scope) => moves.writer(scope),
            Actor::Deleter => moves.deleter(),
            Actor::Neighbour(scope) => moves.neighbour(scope),
            Actor::Fetcher(kind) => moves.fetcher(kind),
        }
    }

    fn judge(&self, state: &State) -> Option<Violation> {
        let stale = state
            .row
            .is_some_and(|row| row != state.source && row != EXPIRED);
        let counts = state.pending.iter().chain(&state.others);
        let left = state.lease != Lease::Free
            || state.open != 0
            || counts.into_iter().any(|count| *count != 0);
        match self.all_done(state) {
            _ if state.pays => Some(Violation::PaysForAnother),
            true if stale => Some(Violation::StaleForGood),
            true if left => Some(Violation::LeftBehind),
            _ => None,
        }
    }

    fn title(&self) -> String {
        format!("{}, {:?}", self.name, self.actors)
    }

    fn name(&self, actor: usize) -> String {
        format!("{actor} {:?}", self.actors[actor])
    }

    fn describe(&self, state: &State) -> String {
        format!(
            "source {} row {:?} | marks {:?}, of others {:?} | {:?}, {} stores of {}",
            state.source,
            state.row,
            state.pending,
            state.others,
            state.lease,
            state.open,
            state.begun
        )
    }
}
