//! What happens in Postgres that the layer above must know: rows and definitions that change, and
//! the end of transactions. This layer sees and reports; it decides nothing.

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::pg_sys::{Datum, Oid};

/// Receives the events. Set once, when the library is loaded.
#[derive(Clone, Copy)]
pub struct Observer {
    /// A row with this key came, went or changed; called after the change, before the statement
    /// ends.
    pub row: fn(relation: Oid, key: &[u8], change: RowChange, noted_by: NotedBy),
    /// A row was written whose copy the tier has, and this is what the row holds; called after `row`.
    pub stored: fn(Copied<'_>),
    /// A plain statement is about to write a row with this key.
    pub writing: fn(relation: Oid, key: &[u8]),
    /// A COPY into this table begins that tells of each key so; the number is for its end.
    pub copying: fn(table: Oid) -> usize,
    /// It has ended, without an error.
    pub copied: fn(number: usize),
    /// It has held back these rows of this composite type, which the INSERT of one row is to write.
    pub held_back: fn(table: Oid, insert: &CStr, row_type: Oid, rows: &[Datum]),
    /// A change of a row left so many bytes for VACUUM to give back; called when `row` is.
    pub died: fn(relation: Oid, dead: DeadBytes),
    /// All rows of a cache may have changed.
    pub truncated: fn(relation: Oid),
    /// A relation's definition or one of its triggers changes, or TRUNCATE removes its rows.
    pub altered: fn(relation: Oid),
    /// A row of a table changed on which an entry of a cache depends.
    pub depended_on: fn(cache: Oid, key: &[u8]),
    /// All rows of such a table may have gone or changed.
    pub depended_on_all: fn(cache: Oid),
    /// A table on which entries depend has, or had, this child.
    pub inherited: fn(child: Oid, parent: Oid),
    /// A cache has become a partition of another table, or is such no longer.
    pub placed: fn(cache: Oid),
    pub created: fn(relation: Oid),
    pub dropped: fn(relation: Oid),
    pub database_dropped: fn(database: Oid),
    pub transaction: fn(Moment),
    /// The server has started: shared memory exists, and no process but the postmaster, which calls this.
    pub started: fn(),
    /// The server was shut down without a failure, and only the postmaster is left, which calls this.
    pub stopped: fn(),
}

/// The value of a row of a table cache, and where its copy is.
#[derive(Clone, Copy)]
pub struct Copied<'a> {
    pub relation: Oid,
    pub slot: u32,
    pub hash: u64,
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
    /// Of the value, as the tier keeps it.
    pub kind: u8,
    pub deadline: i64,
}

/// Bytes of dead rows in a table, and in its TOAST table.
#[derive(Clone, Copy, Default)]
pub struct DeadBytes {
    pub rows: usize,
    pub toast: usize,
}

/// What a change of a row means for its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RowChange {
    /// It is there, new or changed.
    Set,
    /// It is gone.
    Gone,
}

/// Who saw it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NotedBy {
    /// The trigger that every cache has, for a statement.
    Trigger,
    /// A function of ours that changed the row without a statement.
    Function,
}

/// Moments in the life of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The last one at which user-defined code may run; see `hooks::pre_commit_portal`.
    Ending,
    /// The last one at which it can fail; nobody else sees its writes yet.
    BeforeCommit,
    /// PREPARE TRANSACTION was called and can still fail.
    BeforePrepare,
    /// It has ended: the transaction belongs to nobody now, and others decide it.
    Prepared,
    /// Some prepared transaction was committed or rolled back.
    PreparedEnded,
    /// Others see its writes; its locks are still held.
    Committed,
    Aborted,
    /// A savepoint was released: what happened under it counts for the one above.
    SubCommitted {
        level: i32,
    },
    /// A savepoint was rolled back.
    SubAborted {
        level: i32,
    },
}

/// How far the end of a transaction has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The observer has not heard of an end.
    Open,
    /// It has heard of the commit. What changes from now on is done by callbacks of other
    /// extensions that run after ours. It must be dealt with at once: the observer is not called
    /// again before others see it.
    Committing,
    /// The same of PREPARE TRANSACTION.
    Preparing,
}

thread_local! {
    static OBSERVER: Cell<Option<Observer>> = const { Cell::new(None) };
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Open) };
}

/// Sets who hears of the events; called once, while the library is loaded.
pub(in crate::pg) fn set_observer(observer: Observer) {
    OBSERVER.set(Some(observer));
}

/// Hands an event to the observer, if there is one.
pub fn emit(event: impl FnOnce(&Observer)) {
    if let Some(observer) = OBSERVER.get() {
        event(&observer);
    }
}

/// How deep in savepoints the session is; 1 outside of any.
pub fn nesting_level() -> i32 {
    // Asked for every row, so without the guard that pgrx puts around calls that may raise.
    unsafe extern "C-unwind" {
        safe fn GetCurrentTransactionNestLevel() -> i32;
    }
    GetCurrentTransactionNestLevel()
}

/// How far the end of the transaction has come.
#[inline]
pub fn phase() -> Phase {
    PHASE.get()
}

/// Whether what changes now must be dealt with at once.
#[inline]
pub fn is_late() -> bool {
    phase() != Phase::Open
}

/// Notes how far the end of the transaction has come.
#[inline]
pub(in crate::pg) fn set_phase(phase: Phase) {
    PHASE.set(phase);
}
