//! One state of the model: the table's rows, the shared memory, and each backend.
//!
//! A state consists of plain values, and is small enough to be copied millions of times. `postgres`,
//! `tier_access`, `dirty`, `cache_get`, `row_changes` and `end` define which backend may change which part, and when.

/// The number of keys. There are two, so that each key shares its stripe with another key.
pub const KEYS: usize = 2;
pub const MAX_ACTORS: usize = 5;
const MAX_VERSIONS: usize = 8;

/// The value of a row that does not exist, or of a write that has nothing to publish.
pub const ABSENT: u8 = 0;
/// The transaction that wrote the rows of the first state.
pub const INITIAL_XID: u8 = 0;
/// A generation that no slot has.
pub const NO_GENERATION: u8 = 0;

/// A version of a row, and the transaction that wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Version {
    pub xid: u8,
    pub value: u8,
    /// Whether TRUNCATE or DROP wrote the version: after its commit it hides older versions even from older snapshots.
    pub wipe: bool,
    /// Whether the version was written under the savepoint that is still open.
    pub by_subxact: bool,
}

/// The versions of one row in the order of their writes. Row locks make this also the order of their commits. A
/// rollback removes its versions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Chain {
    len: u8,
    versions: [Version; MAX_VERSIONS],
}

impl Chain {
    pub fn push(&mut self, version: Version) {
        self.versions[self.len as usize] = version;
        self.len += 1;
    }

    pub fn as_slice(&self) -> &[Version] {
        &self.versions[..self.len as usize]
    }

    pub fn last_mut(&mut self) -> Option<&mut Version> {
        self.versions[..self.len as usize].last_mut()
    }

    pub fn retain(&mut self, keep: impl Fn(&Version) -> bool) {
        let mut kept = Chain::default();
        for version in self.as_slice().iter().filter(|version| keep(version)) {
            kept.push(*version);
        }
        *self = kept;
    }
}

/// The cache's table, and the outcome of transactions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Table {
    pub rows: [Chain; KEYS],
    /// Has bit x set if transaction x is committed and visible (event e has happened).
    pub committed: u8,
    /// Whether the table exists, according to committed transactions.
    pub exists: bool,
    /// Whether pgcache's trigger fires ALWAYS, according to committed transactions.
    pub always: bool,
}

/// The words of the cache's slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Slot {
    pub generation: u8,
    pub epoch: u8,
    pub pending_writers: i8,
    pub suspended: bool,
    /// Whether a reader has found that no writer holds a cache lock that it took before the slot was created.
    pub proven: bool,
}

/// The words of the stripe that both keys share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Stripe {
    /// A counter that rises with each mark and unmark of any key on the stripe, in any cache.
    pub ver: u8,
    /// The number of marks on each key.
    pub marks: [i8; KEYS],
    /// Whether marks on the key have overlapped since it last had none.
    pub met: [bool; KEYS],
    /// The number of marks on keys of other caches.
    pub others: i8,
}

/// How many writers have changed a cache as a whole and found no slot. Each of them holds a lock that does not conflict
/// with another writer's; readers only check whether any writer holds one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Locked {
    pub ours: i8,
    /// The number of such writers of another cache.
    pub others: i8,
}

/// An entry of the hot tier: a value, and the words under which it was stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Entry {
    pub value: u8,
    pub generation: u8,
    pub epoch: u8,
    pub xid: u8,
}

/// Shared memory. Both keys are on the same stripe and in the same partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Shared {
    pub slot: Option<Slot>,
    /// Whether the slot table has room for the cache.
    pub room: bool,
    /// The generation of the newest slot. Generations are never reused, even when a slot is freed.
    pub last_generation: u8,
    pub stripe: Stripe,
    pub locked: Locked,
    pub entries: [Option<Entry>; KEYS],
    /// The actor that holds the partition lock between two steps.
    pub partition: Option<u8>,
}

/// The part of shared memory that a lookup remembers for a later fill (protocol rule 4), and that a mark remembers for
/// its publish (protocol rule 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Token {
    pub ver: u8,
    pub generation: u8,
    pub epoch: u8,
    /// The number of marks on the key.
    pub marks: i8,
    /// The number of marks on keys of other caches on the stripe.
    pub others: i8,
    pub cache_pend: i8,
    pub suspended: bool,
    pub proven: bool,
}

/// A key and whether the transaction may have changed it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct DirtyKey {
    pub dirty: bool,
    pub marked: bool,
    /// The value to publish; ABSENT if none.
    pub value: u8,
    /// Whether no trigger, rule, generated column or policy made the row differ from `value`.
    pub exact: bool,
    /// Whether the key was noted under the savepoint that is still open.
    pub by_subxact: bool,
    /// Whether the stripe has no room for the key's mark. The writer then raises the cache's `pending_writers` instead,
    /// without changing the epoch.
    pub no_place: bool,
    pub token: Token,
    pub slot: SlotSeen,
}

/// Whether the writer of a key's mark knows the cache's slot. Without the slot the mark cannot remove the entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum SlotSeen {
    #[default]
    Unasked,
    None,
    Some,
}

/// The progress of a writer that changes another cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Other {
    #[default]
    None,
    Key,
    KeyMarked,
    Cache,
    CacheMarked,
}

/// The progress of the mark on a dirty cache. No partition lock protects a slot's words, so each changes in its own
/// step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum MarkProgress {
    #[default]
    None,
    /// The writer found no slot. Next it takes the lock, and then looks up the slot again.
    NoSlotFound,
    LockTaken,
    PendRaised,
    Full,
    HalfUndone,
}

/// The slot that a mark of the whole cache has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum MarkedOn {
    #[default]
    Nothing,
    /// The generation of the slot that was marked.
    Slot(u8),
}

/// Whether the transaction may have changed the whole cache, and how far the cache is marked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct DirtyCache {
    pub dirty: bool,
    /// Whether too many keys were dirty, so that the transaction no longer notes single keys.
    pub overflowed: bool,
    pub suspend: bool,
    pub mark: MarkProgress,
    pub marked_on: MarkedOn,
    /// Whether the transaction holds the lock that a writer takes on a cache without a slot.
    pub locked: bool,
}

/// The definition change that the transaction has made and not yet committed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Ddl {
    #[default]
    None,
    Drop,
    Create,
    /// The mode of the trigger after the commit: ALWAYS or not.
    Trigger(bool),
}

/// The position of a backend between two atomic steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Phase {
    /// Before the next operation. After the last operation the backend marks, and then commits (event e).
    #[default]
    Run,
    /// In cache_get, before the second half of the lookup.
    Lookup,
    /// In cache_get, before the snapshot is taken.
    Snapshot,
    /// In cache_get, before the row is read.
    Row,
    /// In cache_get, before the fill.
    Fill,
    /// In cache_get, before the second half of the fill's checks.
    FillHalf,
    /// The backend is about to create a slot with a trigger mode that it read earlier (only in a negative control).
    MakeSlot,
    /// The backend is about to end a suspension because of a trigger mode that it read earlier (only in a negative
    /// control).
    Resume,
    /// After the commit or abort, before a COMMIT or ABORT callback.
    Unmark,
    /// After the commit or abort, before the second half of a publish's checks.
    UnmarkHalf,
    /// After the commit or abort, before the release of the locks.
    Release,
    Done,
}

/// The state of one backend and its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Backend {
    /// The next operation of the script.
    pub pc: u8,
    pub at: Phase,
    pub has_xid: bool,
    pub aborting: bool,
    /// Whether an error in the ABORT callbacks has made them run again.
    pub rerun: bool,
    /// Whether a write came after the transaction's marks.
    pub late: bool,
    pub in_subxact: bool,
    pub has_snapshot: bool,
    pub snapshot: u8,
    /// The relation locks, as bits of `postgres::Lock`. `subxact_locks` are the locks among them that end with the open
    /// savepoint.
    pub locks: u8,
    pub subxact_locks: u8,
    pub keys: [DirtyKey; KEYS],
    pub cache: DirtyCache,
    pub other: Other,
    /// Whether this get has checked the cache's lock.
    pub has_checked: bool,
    /// Whether another partition has provided the room for a publish.
    pub has_room: bool,
    pub ddl: Ddl,
    /// The index of the oldest version that the running get may return.
    pub oldest_allowed: u8,
    /// The token of the running get.
    pub token: Token,
    /// The row that the running get has read.
    pub row: Version,
    /// The result of the first half of the running get's checks.
    pub verdict: bool,
    /// The values that this transaction has seen under REPEATABLE READ, by key.
    pub shown: [Option<u8>; KEYS],
}

/// A broken promise. The letters are those of the list in `hot_tier`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Violation {
    /// (a) a get returned an older value than a commit that was acknowledged before the get began
    OlderThanAcknowledged,
    /// (a) a get returned an older value than a commit that was visible, but not yet acknowledged, before the get began
    OlderThanVisible,
    /// (b) a get returned a value that no committed transaction has written
    NotCommitted,
    /// (c) a transaction did not see its own write
    OwnWriteUnseen,
    /// (d) REPEATABLE READ: a get and a SELECT of one transaction differ
    DiffersFromSelect,
    /// (e) after all backends have ended, a counter of marks is not zero
    MarkLeftBehind,
    /// (e) after all backends have ended, an entry is not a row of the table
    StaleEntryLeft,
    /// (e) after all backends have ended, a slot has no relation
    SlotLeaked,
    /// (f) in some state, a get that began now would hit an entry that is not the committed row
    EntryNotCurrent,
    /// (g) a fill was refused although neither its key nor its cache was marked since its token, and no mark was set or
    /// removed on its stripe; or a set published nothing because of marks on other keys
    PaysForAnother,
    /// no backend can take a step, although some have not ended
    Stuck,
}

/// A state of the model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub table: Table,
    pub shared: Shared,
    pub backends: [Backend; MAX_ACTORS],
    pub broken: Option<Violation>,
}
