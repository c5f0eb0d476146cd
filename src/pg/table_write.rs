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

/// Removes the row under a key that a statement beginning now sees, whatever it holds; the row as it
/// was. An error where the statement must do it.
pub fn remove(target: &Target, key: Datum) -> Result<Option<Row>, Undecided> {
    // SAFETY: the whole call is one sequence of plain values over the writer's open relations. The row
    // is copied before it is removed, and is what was removed: else there is TM_Updated.
    let removed = unsafe {
        guarded(|| {
            let writer = Writer::open(target)?;
            let removed = loop {
                raw::check_for_interrupts();
                let Some(place) = writer.find(key, Seek::ToRemove, false) else {
                    break Some(None);
                };
                let row = writer.present_row(target);
                match erase(&writer, place) {
                    Step::Done => break Some(Some(row)),
                    Step::Again => {}
                    Step::Strange => break None,
                }
            };
            writer.end();
            removed
        })
    };
    removed.ok_or(Undecided)
}

/// Changes the row under a key as `decide` says, which is shown the row or None; gives what it gave. An
/// error where the statement must do it; nothing is changed then.
///
/// With [`Seek::Any`] the row is one that an insertion would conflict with, an uncommitted one is waited
/// for, and it is locked before `decide` sees it. Otherwise it is one that a statement beginning now
/// sees; it is locked when `decide` wants it changed, and asked about again then.
pub fn change<R>(
    target: &Target,
    key: Datum,
    seek: Seek,
    mut decide: impl FnMut(Option<Row>) -> (Change, R),
) -> Result<R, Undecided> {
    let Some(writer) = Writer::of(target) else {
        return Err(Undecided);
    };
    loop {
        // SAFETY: sequences of plain values over the writer's open relations. Between them runs Rust
        // that does not touch the writer; an error that unwinds leaves it to the abort.
        let place = unsafe { guarded(|| look(&writer, key, seek)) };
        if place.is_none() || seek != Seek::Any {
            // SAFETY: as above; the slot holds the row if there is a place.
            let row = place.map(|_| unsafe { guarded(|| writer.present_row(target)) });
            let (change, answer) = decide(row);
            match (place, change) {
                (_, Change::Keep) | (None, Change::Redate(_) | Change::Remove) => {
                    writer.close();
                    return Ok(answer);
                }
                (None, Change::Put(new)) => {
                    // SAFETY: as above.
                    match unsafe { guarded(|| insert(&writer, target, key, &new)) } {
                        Step::Done => {
                            writer.close();
                            return Ok(answer);
                        }
                        _ => continue,
                    }
                }
                (Some(_), _) => {}
            }
        }
        let Some(place) = place else {
            continue;
        };
        // SAFETY: as above.
        let mut step = unsafe { guarded(|| lock_row(&writer, place, seek)) };
        if step == Step::Done {
            // SAFETY: as above; the lock has put the row into the slot.
            let row = unsafe { guarded(|| writer.present_row(target)) };
            let (change, answer) = decide(Some(row));
            // SAFETY: as above.
            step = unsafe { guarded(|| make(&writer, target, key, place, &change)) };
            if step == Step::Done {
                writer.close();
                return Ok(answer);
            }
        }
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

/// # Safety
/// Inside of `guarded`; the writer is open.
unsafe fn look(writer: &Writer, key: Datum, seek: Seek) -> Option<pg_sys::ItemPointerData> {
    // SAFETY: as the caller says.
    unsafe {
        raw::check_for_interrupts();
        writer.find(key, seek, true)
    }
}

/// Locks a row, so that what is decided by it still holds when it is changed. The slot `present` holds
/// it afterwards.
///
/// # Safety
/// Inside of `guarded`; the writer is open.
unsafe fn lock_row(writer: &Writer, mut place: pg_sys::ItemPointerData, seek: Seek) -> Step {
    let mode = match seek {
        Seek::ToRemove => pg_sys::LockTupleMode::LockTupleExclusive,
        _ => pg_sys::LockTupleMode::LockTupleNoKeyExclusive,
    };
    // SAFETY: as the caller says. No page stays pinned while this waits.
    unsafe {
        let mut failure = pg_sys::TM_FailureData::default();
        raw::clear_slot(writer.present);
        outcome((writer.access.lock)(
            writer.table,
            &mut place,
            null_mut(),
            writer.present,
            raw::GetCurrentCommandId(true),
            mode,
            pg_sys::LockWaitPolicy::LockWaitBlock,
            0,
            &mut failure,
        ))
    }
}

/// # Safety
/// Inside of `guarded`; the writer is open, and its slot `present` holds the row at `place`.
unsafe fn make(
    writer: &Writer,
    target: &Target,
    key: Datum,
    place: pg_sys::ItemPointerData,
    change: &Change,
) -> Step {
    // SAFETY: as the caller says.
    unsafe {
        match change {
            Change::Put(new) => update(writer, target, key, place, Some(new), None),
            Change::Redate(deadline) => update(writer, target, key, place, None, Some(*deadline)),
            Change::Remove => erase(writer, place),
            Change::Keep => Step::Done,
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
unsafe fn erase(writer: &Writer, mut place: pg_sys::ItemPointerData) -> Step {
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
