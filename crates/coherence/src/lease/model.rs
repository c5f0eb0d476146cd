//! The model of leases: its configurations, its clauses, and its state.

use crate::actors::{Actors, backends};
use crate::clauses::clauses;

/// The largest number of actors in a configuration.
pub const MAX_ACTORS: usize = 3;

clauses! {
    Model:
    /// No lease and no watch is granted while a mark on the key exists.
    CheckMark,
    /// A mark is on the key, not on all keys of its stripe.
    MarksByKey,
    /// No lease and no watch is granted while a change of the whole cache is pending.
    CheckCachePend,
    /// No lease and no watch is granted while a writer without a slot holds the cache's lock.
    CheckLock,
    /// The check of the cache's lock comes after the lease's record exists.
    CheckLockAfter,
    /// The lock that a writer takes for a cache without a slot belongs to that cache alone.
    LockByCache,
    /// A writer that changes another cache as a whole voids no lease or watch of this cache.
    VoidsByCache,
    /// A mark voids leases.
    MarkVoids,
    /// A writer of a whole cache raises `pending_writers` before it voids the leases.
    PendBeforeVoid,
    /// Marks come before the removal of the row.
    MarkBeforeRemoval,
    /// The removal waits for the transaction of a row that it cannot see.
    RemovalWaits,
    /// A fetcher checks its lease after it has written the row.
    StoreChecksAfter,
    /// A fetcher without a lease checks its watch after it has written the row.
    WatchChecksAfter,
    /// A mark voids watches.
    MarkVoidsWatches,
    /// A watch begins before the snapshot that reads the source.
    WatchBeforeSnapshot,
    /// Under REPEATABLE READ a fetcher stores a value only if the latest snapshot would have read the same value.
    OldSnapshotStoresNothing,
    /// The rollback of a store does not restore a client's lease that was voided after the store.
    TakenBackUnlessVoid,
    /// A delete that has found no row checks for the row again under its mark.
    DeleteChecksAgain,
    /// The second check of a delete waits for the transaction of a row that it cannot see.
    DeleteWaits,
    /// A fetcher announces its store before it writes the row.
    StoreAnnounced,
    /// A store that has begun and ended since the delete's first check counts, too.
    DeleteCountsBegun,
}

/// The part of the cache that a writer's mark covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkScope {
    Key,
    Cache,
    /// The whole cache, with a lock, because the cache has no slot.
    NoSlot,
}

/// How a fetcher stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetcherKind {
    Leased,
    /// A watch replaces the lease, because the hot tier's records or this session's leases are used up.
    Untracked,
    /// A transaction whose snapshot was taken long before.
    RepeatableRead,
    /// The lease of `cache_set_leased` survives the rollback of a store, which the client tries again.
    Client,
}

/// An actor of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Actor {
    Writer(MarkScope),
    /// Deletes the entry in a separate transaction, after a change of a source on which no entry depends.
    Deleter,
    /// A writer of another cache, with a key on the same stripe.
    Neighbour(MarkScope),
    Fetcher(FetcherKind),
}

/// A configuration: its actors, its first state, and the clauses that it leaves out.
#[derive(Clone, Debug)]
pub struct Model {
    pub name: &'static str,
    pub actors: Vec<Actor>,
    /// Whether the first state has an expired row, so that every reader misses.
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

    /// Returns whether only one actor, a fetcher, works on the key and its cache.
    pub fn is_alone(&self) -> bool {
        let owns = |actor: &&Actor| !matches!(actor, Actor::Neighbour(_));
        self.actors.iter().filter(owns).count() == 1
    }
}

/// Returns every configuration. The tests visit each completely.
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

/// The lease record of the key. A number is the actor that holds the lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Lease {
    #[default]
    Free,
    Computing(u8),
    Stored(u8),
    StoredVoid(u8),
}

/// The source's version from which a row was made; None if no row exists.
pub type Row = Option<u8>;

/// The position of an actor.
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
    Requesting,
    CheckingLock,
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

/// The state of one actor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Backend {
    pub at: Phase,
    /// Whether a writer has removed the committed row.
    pub has_removed: bool,
    /// Whether a fetcher has won the lease.
    pub has_lease: bool,
    pub marked: bool,
    pub aborting: bool,
    /// For a client: whether it has rolled back a store and tries again. For a writer: whether it has voided the leases
    /// before its mark (only in a negative control).
    pub again: bool,
    /// The version of the source in the actor's snapshot.
    pub snapshot: u8,
    /// The version of the source that the actor has read.
    pub read: u8,
    /// The row that the actor has written and not yet committed.
    pub row: Row,
    /// Whether the fetcher's watch is still valid.
    pub watches: bool,
    /// Whether the fetcher has announced its store.
    pub announced: bool,
    /// The number of stores that had begun when a delete first checked for the row.
    pub begun: u8,
    /// Whether a store was open when a delete first checked for the row.
    pub open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The source's committed version; each writer commits a new version.
    pub source: u8,
    pub row: Row,
    /// The numbers of writers between mark and unmark: writers of the key, writers of the cache, and writers that hold
    /// the cache's lock.
    pub pending: [u8; 3],
    /// The numbers of writers between mark and unmark, as in `pending`, of another cache that has a key on the same
    /// stripe.
    pub others: [u8; 3],
    pub lease: Lease,
    /// The number of announced stores.
    pub begun: u8,
    /// The number of announced stores that are still open.
    pub open: u8,
    /// Whether a writer of another cache has made a fetcher give up, or voided its lease or watch.
    pub pays: bool,
    pub backends: [Backend; MAX_ACTORS],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// After all actors have ended, the entry differs from the source.
    StaleForGood,
    /// After all actors have ended, a mark or lease remains.
    LeftBehind,
    /// A fetcher stores nothing although no writer has changed its key or its cache.
    PaysForAnother,
    /// No actor can take a step.
    Stuck,
}

/// The version of an entry that had expired.
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
