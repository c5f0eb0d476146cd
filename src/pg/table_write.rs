//! Writing rows of a table by key, past the executor, with its own means.
//!
//! What `INSERT ... ON CONFLICT (key) DO UPDATE`, `UPDATE` and `DELETE ... WHERE key = $1` do, only for a
//! [`Target`] that is `writable`, only under READ COMMITTED, only where a snapshot is active and nothing
//! runs in parallel: [`possible`] asks. The caller holds RowExclusiveLock on the table and notes the key
//! for the trigger that is not fired.
//!
//! How two writers of one key meet:
//!
//! - The place of a row comes from an index scan and is a hint. Between the scan and the change the row
//!   may be moved, locked or deleted. The change itself then says so (TM_Updated, TM_Deleted), and all
//!   begins again. It waits for whoever is at the row, in the queue that every writer stands in.
//! - That a scan finds nothing is a hint as well: a row that moves while it is looked for can be missed.
//!   The speculative insertion decides. Where the index has the key already, the row is taken back, and
//!   all begins again.
//! - A place cannot come to hold another row meanwhile: the active snapshot is older than the scan, and
//!   vacuum keeps what was alive then.
//! - No page of table or index stays pinned while anything is waited for: vacuum would wait, too.

use std::mem::size_of;
use std::ptr::null_mut;

use pgrx::pg_sys::{self, Datum, TM_Result};

use super::raw::{self, guarded};
use super::table_row::{self, New, Seek, Writer};
use super::table_scan::Row;
use super::table_target::Target;
use super::version;
use super::{clock, lock};

/// What is to become of a row.
#[derive(Clone, Copy)]
pub enum Change {
    Keep,
    /// A new row, or a new version of the one that is there.
    Put(New),
    /// A new version with this deadline and the same value.
    Redate(Option<clock::Timestamp>),
    Remove,
}

/// The statement must decide: nothing was changed.
pub struct Undecided;

/// What became of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    /// Somebody else was faster.
    Again,
    /// A state that this file does not know: the caller has the statement run instead.
    Strange,
}

/// Whether the present transaction can write past the executor.
pub fn possible() -> bool {
    // SAFETY: both read variables of this process and raise nothing.
    !lock::one_snapshot_per_transaction()
        && unsafe { raw::ActiveSnapshotSet() && !raw::IsInParallelMode() }
}

/// Inserts or overwrites rows, in this order; `written` is told the place of each. False where the
/// statement must do it, all of it: what has been written already is overwritten then.
pub fn put_all(
    target: &Target,
    rows: impl Iterator<Item = (Datum, New)>,
    mut written: impl FnMut(usize),
) -> bool {
    let Some(writer) = Writer::of(target) else {
        return false;
    };
    for (place, (key, new)) in rows.enumerate() {
        // SAFETY: the sequence holds plain values only; the writer's relations are open.
        let done = unsafe { guarded(|| put(&writer, target, key, &new)) };
        if !done {
            writer.close();
            return false;
        }
        written(place);
    }
    writer.close();
    true
}

/// Inserts or overwrites one row. False where the statement must do it.
pub fn put_one(target: &Target, key: Datum, new: &New) -> bool {
    // SAFETY: as in `put_all`; the whole call is one sequence.
    unsafe {
        guarded(|| {
            let Some(writer) = Writer::open(target) else {
                return false;
            };
            let done = put(&writer, target, key, new);
            writer.end();
            done
        })
    }
}

/// Changes the row under a key as `decide` says, which is shown the row, locked, or None. With
/// [`Seek::Any`] the row is one that an insertion would conflict with, and an uncommitted one is waited
/// for; with [`Seek::Visible`] one that a statement beginning now sees. Gives what `decide` gave;
/// an error where
/// the statement must do it; nothing is changed then.
pub fn change<R>(
    target: &Target,
    key: Datum,
    seek: Seek,
    mut decide: impl FnMut(Option<Row>) -> (Change, R),
) -> Result<R, Undecided> {
    let mode = match seek {
        Seek::ToRemove => pg_sys::LockTupleMode::LockTupleExclusive,
        _ => pg_sys::LockTupleMode::LockTupleNoKeyExclusive,
    };
    let Some(writer) = Writer::of(target) else {
        return Err(Undecided);
    };
    loop {
        // SAFETY: sequences of plain values over the writer's open relations. Between them runs Rust
        // that does not touch the writer; an error that unwinds leaves it to the abort.
        let (step, present) = unsafe { guarded(|| look(&writer, target, key, seek, mode)) };
        let step = match step {
            Step::Done => {
                let (change, answer) = decide(present.map(|(_, row)| row));
                let place = present.map(|(place, _)| place);
                // SAFETY: as above.
                match unsafe { guarded(|| make(&writer, target, key, place, &change)) } {
                    Step::Done => {
                        writer.close();
                        return Ok(answer);
                    }
                    other => other,
                }
            }
            other => other,
        };
        if step == Step::Strange {
            writer.close();
            return Err(Undecided);
        }
    }
}

/// # Safety
/// Inside of `guarded`; the writer is open.
unsafe fn put(writer: &Writer, target: &Target, key: Datum, new: &New) -> bool {
    // SAFETY: as the caller says.
    unsafe {
        loop {
            raw::check_for_interrupts();
            let step = match writer.find(key, Seek::Any, false) {
                Some(place) => update(writer, target, key, place, Some(new), None),
                None => insert(writer, target, key, new),
            };
            match step {
                Step::Done => return true,
                Step::Again => {}
                Step::Strange => return false,
            }
        }
    }
}

/// Finds the row and locks it, so that what is decided by it still holds when it is changed.
///
/// # Safety
/// Inside of `guarded`; the writer is open.
unsafe fn look(
    writer: &Writer,
    target: &Target,
    key: Datum,
    seek: Seek,
    mode: pg_sys::LockTupleMode::Type,
) -> (Step, Option<(pg_sys::ItemPointerData, Row)>) {
    // SAFETY: as the caller says; the lock fills the slot `present` with the row.
    unsafe {
        raw::check_for_interrupts();
        let Some(mut place) = writer.find(key, seek, true) else {
            return (Step::Done, None);
        };
        let mut failure = pg_sys::TM_FailureData::default();
        let locked = (writer.access.lock)(
            writer.table,
            &mut place,
            null_mut(),
            writer.present,
            raw::GetCurrentCommandId(true),
            mode,
            pg_sys::LockWaitPolicy::LockWaitBlock,
            0,
            &mut failure,
        );
        match outcome(locked) {
            Step::Done => {
                raw::materialize_slot(writer.present);
                let row = super::table_scan::copy_row(writer.present, target);
                (Step::Done, Some((place, row)))
            }
            other => (other, None),
        }
    }
}

/// # Safety
/// Inside of `guarded`; the writer is open, and its slot `present` holds the row at `place`.
unsafe fn make(
    writer: &Writer,
    target: &Target,
    key: Datum,
    place: Option<pg_sys::ItemPointerData>,
    change: &Change,
) -> Step {
    // SAFETY: as the caller says.
    unsafe {
        match (change, place) {
            (Change::Put(new), None) => insert(writer, target, key, new),
            (Change::Put(new), Some(place)) => update(writer, target, key, place, Some(new), None),
            (Change::Redate(deadline), Some(place)) => {
                update(writer, target, key, place, None, Some(*deadline))
            }
            (Change::Remove, Some(place)) => remove(writer, place),
            (Change::Keep, _) | (_, None) => Step::Done,
        }
    }
}

/// # Safety
/// Inside of `guarded`; the writer is open.
unsafe fn update(
    writer: &Writer,
    target: &Target,
    key: Datum,
    mut place: pg_sys::ItemPointerData,
    new: Option<&New>,
    redate: Option<Option<clock::Timestamp>>,
) -> Step {
    // SAFETY: `fresh` is filled with a whole row before it is stored; the access method copies it.
    unsafe {
        table_row::fill(writer, target, key, true, new, redate);
        let mut failure = pg_sys::TM_FailureData::default();
        let mut mode = pg_sys::LockTupleMode::LockTupleNoKeyExclusive;
        let mut which: version::UpdateIndexes = Default::default();
        let updated = (writer.access.update)(
            writer.table,
            &mut place,
            writer.fresh,
            raw::GetCurrentCommandId(true),
            null_mut(),
            null_mut(),
            true,
            &mut failure,
            &mut mode,
            &mut which,
        );
        let step = outcome(updated);
        if step == Step::Done {
            if version::enters_indexes(which) {
                let (state, result) = open_indexes(writer.table);
                version::enter_updated(result, writer.fresh, state, which);
                close_indexes(state, result);
            }
            raw::CommandCounterIncrement();
        }
        step
    }
}

/// Inserts speculatively: the row becomes real when every index has taken its key.
///
/// # Safety
/// Inside of `guarded`; the writer is open.
unsafe fn insert(writer: &Writer, target: &Target, key: Datum, new: &New) -> Step {
    // SAFETY: as in `update`. Whoever finds the speculative row waits for its token, which is held
    // from before the insertion until after its end; an abort lets go of it.
    unsafe {
        table_row::fill(writer, target, key, false, Some(new), None);
        let (state, result) = open_indexes(writer.table);
        let xid = raw::GetCurrentTransactionId();
        let token = raw::SpeculativeInsertionLockAcquire(xid);
        let command = raw::GetCurrentCommandId(true);
        (writer.access.insert)(writer.table, writer.fresh, command, 0, null_mut(), token);
        let alone = version::enter_inserted(result, writer.fresh, state);
        let place = &raw mut (*writer.fresh).tts_tid;
        match alone {
            true => raw::heap_finish_speculative(writer.table, place),
            false => raw::heap_abort_speculative(writer.table, place),
        }
        raw::SpeculativeInsertionLockRelease(xid);
        close_indexes(state, result);
        raw::CommandCounterIncrement();
        match alone {
            true => Step::Done,
            false => Step::Again,
        }
    }
}

/// # Safety
/// Inside of `guarded`; the writer is open.
unsafe fn remove(writer: &Writer, mut place: pg_sys::ItemPointerData) -> Step {
    // SAFETY: as the caller says.
    unsafe {
        let mut failure = pg_sys::TM_FailureData::default();
        let removed = (writer.access.delete)(
            writer.table,
            &mut place,
            raw::GetCurrentCommandId(true),
            null_mut(),
            null_mut(),
            true,
            &mut failure,
            false,
        );
        let step = outcome(removed);
        if step == Step::Done {
            raw::CommandCounterIncrement();
        }
        step
    }
}

fn outcome(result: TM_Result::Type) -> Step {
    match result {
        TM_Result::TM_Ok => Step::Done,
        TM_Result::TM_Updated | TM_Result::TM_Deleted => Step::Again,
        _ => Step::Strange,
    }
}

/// The executor's own description of the table and its indexes, as much of it as index entries need.
///
/// # Safety
/// Inside of `guarded`; the table is open.
unsafe fn open_indexes(
    table: pg_sys::Relation,
) -> (*mut pg_sys::EState, *mut pg_sys::ResultRelInfo) {
    // SAFETY: the node is zeroed and gets its tag, as makeNode would do. It stands in no range table
    // (number 0), so nothing is looked up there.
    unsafe {
        let state = raw::CreateExecutorState();
        let size = size_of::<pg_sys::ResultRelInfo>();
        let result: *mut pg_sys::ResultRelInfo =
            raw::MemoryContextAllocZero((*state).es_query_cxt, size).cast();
        (*result).type_ = pg_sys::NodeTag::T_ResultRelInfo;
        raw::InitResultRelInfo(result, table, 0, null_mut(), 0);
        raw::ExecOpenIndices(result, false);
        (state, result)
    }
}

/// # Safety
/// Inside of `guarded`; both come from `open_indexes`.
unsafe fn close_indexes(state: *mut pg_sys::EState, result: *mut pg_sys::ResultRelInfo) {
    // SAFETY: as the caller says; the state's memory has all that was allocated for it.
    unsafe {
        raw::ExecCloseIndices(result);
        raw::FreeExecutorState(state);
    }
}
