//! Configurations, clauses and the state of the model of leases.

use crate::clauses::clauses;

/// Actors that a configuration has at most.
pub const MAX_ACTORS: usize = 3;

clauses! {
    /// No lease while a writer of the key's stripe pends.
    GrantStripePend,
    /// Nor while one of the whole cache does.
    GrantCachePend,
    /// Nor while one without a slot does.
    GrantGlobalPend,
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
    /// So does a fetcher without a lease for its token.
    TokenAsksAfter,
    /// The token is taken while nothing pends.
    TokenPend,
    /// It holds the stripe's `ver`, which a mark raises.
    TokenStripe,
    /// The cache's.
    TokenCache,
    /// The global one.
    TokenGlobal,
    /// It is taken before the snapshot that reads the source.
    TokenBeforeSnapshot,
    /// Under REPEATABLE READ only what the latest snapshot would have read is stored.
    OldSnapshotStoresNothing,
    /// A client's lease does not come back from a rolled back store if it was voided meanwhile.
    TakenBackUnlessVoid,
}

/// What a writer marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkScope {
    Key,
    Cache,
    Global,
}

/// How a fetcher stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetcherKind {
    Leased,
    /// Records or this session's leases are used up.
    Untracked,
    /// The snapshot was taken long before.
    RepeatableRead,
    /// `cache_set_leased`: the lease survives a rolled back store, which is tried again.
    Client,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Actor {
    Writer(MarkScope),
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

    pub fn without(mut self, clause: Clause) -> Model {
        self.dropped = self.dropped.with(clause);
        self
    }

    pub fn keeps(&self, clause: Clause) -> bool {
        !self.dropped.contains(clause)
    }
}

/// Every configuration; each is visited whole.
pub fn all() -> Vec<Model> {
    use Actor::{Fetcher, Writer};
    let mut models = Vec::new();
    for scope in [MarkScope::Key, MarkScope::Cache, MarkScope::Global] {
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
        }
    }
    models
}

/// `ver` and `pending_writers` of a stripe, a cache or the global pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Counters {
    pub ver: u8,
    pub pending_writers: u8,
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
    Committing,
    Unmarking,
    Unvoiding,
    // a fetcher
    Asking,
    Reading,
    LateToken,
    EarlyCheck,
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
    pub token: [u8; 3],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The source's committed version; each writer makes a new one.
    pub source: u8,
    pub row: Row,
    /// Stripe, cache, global.
    pub words: [Counters; 3],
    pub lease: Lease,
    pub backends: [Backend; MAX_ACTORS],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// After all have ended the entry is not what the source holds.
    StaleForGood,
    /// After all have ended somebody's mark or lease is there.
    LeftBehind,
    /// Nobody can go on.
    Stuck,
}

/// Of an entry that had expired.
pub const EXPIRED: u8 = u8::MAX;

impl Model {
    pub fn first(&self) -> State {
        let mut state = State {
            source: 0,
            row: self.expired_row.then_some(EXPIRED),
            words: [Counters::default(); 3],
            lease: Lease::Free,
            backends: [Backend::default(); MAX_ACTORS],
        };
        for backend in &mut state.backends[self.actors.len()..] {
            backend.at = Phase::Done;
        }
        state
    }
}

impl State {
    pub fn all_done(&self) -> bool {
        self.backends
            .iter()
            .all(|backend| backend.at == Phase::Done)
    }

    pub fn judge(&self) -> Option<Violation> {
        let stale = self
            .row
            .is_some_and(|row| row != self.source && row != EXPIRED);
        let left =
            self.lease != Lease::Free || self.words.iter().any(|words| words.pending_writers != 0);
        match self.all_done() {
            true if stale => Some(Violation::StaleForGood),
            true if left => Some(Violation::LeftBehind),
            _ => None,
        }
    }
}
