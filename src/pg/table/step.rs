//! The single steps of a direct write: each changes one row or says why it could not.
//!
//! Everything here runs inside of `unguarded::guarded` and keeps to its rules. Who repeats a step, and why that
//! is right, is told in `table_write`.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, Datum, TM_Result};

use super::row::{Change, New, Seek, Version, Writer, fill};
use super::scan::Row;
use crate::pg::events::Dead;
use crate::pg::memory::unguarded;
use crate::pg::version;

/// What became of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Done,
    /// Somebody else was faster.
    Again,
    /// A state that this file does not know: the caller has the statement run instead.
    Strange,
}

fn outcome(result: TM_Result::Type) -> Step {
    match result {
        TM_Result::TM_Ok => Step::Done,
        TM_Result::TM_Updated | TM_Result::TM_Deleted => Step::Again,
        _ => Step::Strange,
    }
}

/// Inserts or overwrites; false where the statement must do it.
///
/// # Safety
/// Inside of `guarded`; the writer is open.
pub unsafe fn put(writer: &mut Writer, key: Datum, new: &New) -> bool {
    // SAFETY: as the caller says.
    unsafe {
        loop {
            let step = match writer.find(key, Seek::Any, false) {
                Some(place) => update(writer, key, place, &new.into()),
                None => insert(writer, key, new),
            };
            match step {
                Step::Done => return true,
                Step::Again => {}
                Step::Strange => return false,
            }
        }
    }
}

/// Removes the visible row and gives it; None where the statement must do it.
///
/// # Safety
/// Inside of `guarded`; the writer is open.
pub unsafe fn take(writer: &mut Writer, key: Datum) -> Option<Option<Row>> {
    // SAFETY: as the caller says. The row is copied before it is removed, and is what was removed:
    // else there would be TM_Updated.
    unsafe {
        loop {
            let Some(place) = writer.find(key, Seek::ToRemove, false) else {
                return Some(None);
            };
            let row = writer.present_row();
            match remove(writer, place) {
                Step::Done => return Some(Some(row)),
                Step::Again => {}
                Step::Strange => return None,
            }
        }
    }
}

/// Locks a row, so that what is decided by it still holds when it is changed; the row, if that was done.
///
/// # Safety
/// Inside of `guarded`; the writer is open.
pub unsafe fn lock(
    writer: &Writer,
    mut place: pg_sys::ItemPointerData,
    seek: Seek,
) -> (Step, Option<Row>) {
    let mode = match seek {
        Seek::ToRemove => pg_sys::LockTupleMode::LockTupleExclusive,
        _ => pg_sys::LockTupleMode::LockTupleNoKeyExclusive,
    };
    // SAFETY: as the caller says. The slot lets go of its page before this waits.
    unsafe {
        let mut failure = pg_sys::TM_FailureData::default();
        unguarded::clear_slot(writer.present);
        let step = outcome((writer.access.lock)(
            writer.table,
            &mut place,
            null_mut(),
            writer.present,
            unguarded::GetCurrentCommandId(true),
            mode,
            pg_sys::LockWaitPolicy::LockWaitBlock,
            0,
            &mut failure,
        ));
        (step, (step == Step::Done).then(|| writer.present_row()))
    }
}

/// Changes a row that is locked.
///
/// # Safety
/// Inside of `guarded`; the writer is open, and its slot `present` holds the row at `place`.
pub unsafe fn make(
    writer: &mut Writer,
    key: Datum,
    place: pg_sys::ItemPointerData,
    change: &Change,
) -> Step {
    // SAFETY: as the caller says.
    unsafe {
        match change {
            Change::Put(new) => update(writer, key, place, &new.into()),
            Change::Revalue(value) => {
                let (value, deadline) = (Some(*value), None);
                update(writer, key, place, &Version { value, deadline })
            }
            Change::Redate(deadline) => {
                let (value, deadline) = (None, Some(*deadline));
                update(writer, key, place, &Version { value, deadline })
            }
            Change::Remove => remove(writer, place),
            Change::Keep => Step::Done,
        }
    }
}

/// The same where no row is: only a new one can come of it.
///
/// # Safety
/// Inside of `guarded`; the writer is open.
pub unsafe fn make_absent(writer: &mut Writer, key: Datum, change: &Change) -> Step {
    match change {
        // SAFETY: as the caller says.
        Change::Put(new) => unsafe { insert(writer, key, new) },
        _ => Step::Done,
    }
}

/// # Safety
/// Inside of `guarded`; the writer is open, and its slot `present` holds the row at `place`.
unsafe fn update(
    writer: &mut Writer,
    key: Datum,
    mut place: pg_sys::ItemPointerData,
    new: &Version,
) -> Step {
    // SAFETY: `fresh` is filled with a whole row before it is stored; the access method copies it.
    unsafe {
        let mut dead = writer.dead_with_present();
        if !fill(writer, key, true, new) {
            return Step::Strange;
        }
        let mut failure = pg_sys::TM_FailureData::default();
        let mut mode = pg_sys::LockTupleMode::LockTupleNoKeyExclusive;
        let mut which: version::UpdateIndexes = Default::default();
        let step = outcome((writer.access.update)(
            writer.table,
            &mut place,
            writer.fresh,
            unguarded::GetCurrentCommandId(true),
            null_mut(),
            null_mut(),
            true,
            &mut failure,
            &mut mode,
            &mut which,
        ));
        if step == Step::Done {
            if version::stays_in_page(which) {
                dead.rows = 0;
            }
            if new.value.is_none() {
                dead.long = 0;
            }
            writer.dead += dead;
            if version::enters_indexes(which) {
                let (state, result) = writer.indexes();
                version::enter_updated(result, writer.fresh, state, which);
            }
            unguarded::CommandCounterIncrement();
        }
        step
    }
}

/// Inserts speculatively: the row becomes real when every index has taken its key.
///
/// # Safety
/// Inside of `guarded`; the writer is open.
unsafe fn insert(writer: &mut Writer, key: Datum, new: &New) -> Step {
    // SAFETY: as in `update`. Whoever finds the speculative row waits for its token, which is held
    // from before the insertion until after its end; an abort lets go of it.
    unsafe {
        if !fill(writer, key, false, &new.into()) {
            return Step::Strange;
        }
        let (state, result) = writer.indexes();
        let xid = unguarded::GetCurrentTransactionId();
        let token = unguarded::SpeculativeInsertionLockAcquire(xid);
        let command = unguarded::GetCurrentCommandId(true);
        (writer.access.insert)(writer.table, writer.fresh, command, 0, null_mut(), token);
        let alone = version::enter_inserted(result, writer.fresh, state);
        let place = &raw mut (*writer.fresh).tts_tid;
        match alone {
            true => unguarded::heap_finish_speculative(writer.table, place),
            false => unguarded::heap_abort_speculative(writer.table, place),
        }
        unguarded::SpeculativeInsertionLockRelease(xid);
        unguarded::CommandCounterIncrement();
        match alone {
            true => Step::Done,
            false => Step::Again,
        }
    }
}

/// # Safety
/// Inside of `guarded`; the writer is open, and its slot `present` holds the row at `place`.
unsafe fn remove(writer: &mut Writer, place: pg_sys::ItemPointerData) -> Step {
    // SAFETY: as the caller says.
    unsafe {
        let dead = writer.dead_with_present();
        let step = remove_unseen(writer, place, dead);
        if step == Step::Done {
            unguarded::CommandCounterIncrement();
        }
        step
    }
}

/// The same, not yet to be seen by the next command of the transaction: for whoever removes many, and
/// knows what each leaves.
///
/// # Safety
/// Inside of `guarded`; the writer is open.
pub unsafe fn remove_unseen(
    writer: &mut Writer,
    mut place: pg_sys::ItemPointerData,
    dead: Dead,
) -> Step {
    // SAFETY: as the caller says.
    unsafe {
        let mut failure = pg_sys::TM_FailureData::default();
        let step = outcome((writer.access.delete)(
            writer.table,
            &mut place,
            unguarded::GetCurrentCommandId(true),
            null_mut(),
            null_mut(),
            true,
            &mut failure,
            false,
        ));
        if step == Step::Done {
            writer.dead += dead;
        }
        step
    }
}
