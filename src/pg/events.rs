//! The events that the layer `pg` reports to the layer `cache` above it: changes of rows and definitions, and the end
//! of transactions. `cache` alone decides what an event means.

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::pg_sys::{Datum, Oid};

/// The functions that receive the events. Set once, when the library is loaded.
#[derive(Clone, Copy)]
pub struct Observer {
    /// A row with this key was inserted, deleted or changed; called between the change and the end of the statement.
    pub row: fn(relation: Oid, key: &[u8], change: RowChange, noted_by: NotedBy),
    /// A row was written, and its value may be copied to the hot tier; called after `row`, with the new content.
    pub stored: fn(Copied<'_>),
    /// A plain SQL statement is about to write a row with this key.
    pub writing: fn(relation: Oid, key: &[u8]),
    /// A COPY into this table begins; its keys are reported through `writing`. Returns a number that identifies the
    /// COPY in `copied`.
    pub copying: fn(table: Oid) -> usize,
    /// The COPY with this number has ended without an error.
    pub copied: fn(number: usize),
    /// A COPY held back these rows of type `row_type`. The statement `insert` writes one row, its parameter.
    pub held_back: fn(table: Oid, insert: &CStr, row_type: Oid, rows: &[Datum]),
    /// A change of a row left dead bytes for VACUUM to reclaim; called together with `row`.
    pub died: fn(relation: Oid, dead: DeadBytes),
    /// All rows of a cache may have changed.
    pub truncated: fn(relation: Oid),
    /// A relation's definition or one of its triggers changes, or TRUNCATE removes its rows.
    pub altered: fn(relation: Oid),
    /// A row changed in a table on which an entry of a cache depends.
    pub depended_on: fn(cache: Oid, key: &[u8]),
    /// All rows of a table on which entries of a cache depend may have been removed or changed.
    pub depended_on_all: fn(cache: Oid),
    /// A table on which entries depend has gained or lost this child.
    pub inherited: fn(child: Oid, parent: Oid),
    /// A cache has become a partition of another table, or has ceased to be one.
    pub placed: fn(cache: Oid),
    pub created: fn(relation: Oid),
    pub dropped: fn(relation: Oid),
    pub database_dropped: fn(database: Oid),
    pub transaction: fn(Moment),
    /// The server has started: shared memory exists, and the postmaster, which calls this, is the only process.
    pub started: fn(),
    /// The server was shut down without a failure, and the postmaster, which calls this, is the only process left.
    pub stopped: fn(),
}

/// The value of a row of a table cache, for its copy in the hot tier.
#[derive(Clone, Copy)]
pub struct Copied<'a> {
    pub relation: Oid,
    pub slot: u32,
    pub hash: u64,
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
    /// The type of the value, in the hot tier's encoding.
    pub kind: u8,
    pub deadline: i64,
}

/// Bytes of dead rows in a table, and in its TOAST table.
#[derive(Clone, Copy, Default)]
pub struct DeadBytes {
    pub rows: usize,
    pub toast: usize,
}

/// The effect of a row change on its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RowChange {
    /// The key has a row, which was inserted or changed.
    Set,
    /// The key no longer has a row.
    Gone,
}

/// The code that reports a row change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NotedBy {
    /// The trigger of a cache's table, for a statement.
    Trigger,
    /// A pgcache function that changed the row without a statement.
    Function,
}

/// Moments in the life of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The last moment at which user-defined code may run; see `hooks::pre_commit_portal`.
    Ending,
    /// The last moment at which the transaction can fail; no other session sees its writes yet.
    BeforeCommit,
    /// PREPARE TRANSACTION is running and can still fail.
    BeforePrepare,
    /// PREPARE TRANSACTION has succeeded. The transaction belongs to no session now, and any session may commit it or
    /// roll it back.
    Prepared,
    /// A prepared transaction was committed or rolled back.
    PreparedEnded,
    /// Other sessions see the transaction's writes; its locks are still held.
    Committed,
    Aborted,
    /// A savepoint was released, and its changes now belong to the enclosing level.
    SubCommitted {
        level: i32,
    },
    /// A savepoint was rolled back.
    SubAborted {
        level: i32,
    },
}

/// How far the end of a transaction has progressed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The observer has not been notified of the end.
    Open,
    /// The observer has been notified of the commit. Later changes come from callbacks of other extensions that run
    /// after pgcache's. The observer must handle those changes at once, because nothing calls it again before other
    /// sessions see them.
    Committing,
    /// The observer has been notified of PREPARE TRANSACTION. It must handle later changes at once, too.
    Preparing,
}

thread_local! {
    static OBSERVER: Cell<Option<Observer>> = const { Cell::new(None) };
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Open) };
}

/// Sets the observer; called once, while the library is loaded.
pub(in crate::pg) fn set_observer(observer: Observer) {
    OBSERVER.set(Some(observer));
}

/// Passes an event to the observer, if one is set.
pub fn emit(event: impl FnOnce(&Observer)) {
    if let Some(observer) = OBSERVER.get() {
        event(&observer);
    }
}

/// Returns the session's nesting level of savepoints; 1 outside any savepoint.
pub fn nesting_level() -> i32 {
    // Declared without pgrx's guard, because pgcache calls this function for every changed row.
    unsafe extern "C-unwind" {
        safe fn GetCurrentTransactionNestLevel() -> i32;
    }
    GetCurrentTransactionNestLevel()
}

/// Returns how far the end of the transaction has progressed.
#[inline]
pub fn phase() -> Phase {
    PHASE.get()
}

/// Returns whether a change must be handled at once, because the transaction's end has begun.
#[inline]
pub fn is_late() -> bool {
    phase() != Phase::Open
}

/// Sets how far the end of the transaction has progressed.
#[inline]
pub(in crate::pg) fn set_phase(phase: Phase) {
    PHASE.set(phase);
}
