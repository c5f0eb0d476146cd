//! The steps of a direct write. Each step changes one row, or returns why it cannot.
//!
//! All code here runs inside `unguarded::guarded` and follows the rules of `guarded`. The module `write` repeats the
//! steps, and explains why repeating is safe.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, Datum, TM_Result};

use super::new_row::{RowAction, Version, fill};
use super::writer::{Seek, Writer};
use crate::pg::events::DeadBytes;
use crate::pg::memory::unguarded;
use crate::pg::value::stored::Entry;
use crate::pg::version;

/// The outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Done,
    /// Another transaction has changed the row since the search; the caller must search for it again.
    Again,
    /// A direct write cannot make the change; the caller runs the statement instead.
    Unsupported,
}

fn outcome(result: TM_Result::Type) -> Step {
    match result {
        TM_Result::TM_Ok => Step::Done,
        TM_Result::TM_Updated | TM_Result::TM_Deleted => Step::Again,
        _ => Step::Unsupported,
    }
}

/// Inserts or overwrites a row. Returns false if the caller must run the statement instead.
///
/// # Safety
/// Called inside `guarded`; the writer is open.
pub unsafe fn put(writer: &mut Writer, key: Datum, new: &Entry) -> bool {
    // SAFETY: inside `guarded` and with the writer open, by the caller's contract; the code uses a place right after
    // `find` returned it, while the slot `present` still holds its row.
    unsafe {
        loop {
            let step = match writer.find(key, Seek::Any, false) {
                Some(place) => update(writer, key, place, &new.into()),
                None => insert(writer, key, new),
            };
            match step {
                Step::Done => return true,
                Step::Again => {}
                Step::Unsupported => return false,
            }
        }
    }
}

/// Removes the visible row, if one exists, and returns it. Returns None if the caller must run the statement instead.
///
/// # Safety
/// Called inside `guarded`; the writer is open.
pub unsafe fn take(writer: &mut Writer, key: Datum) -> Option<Option<Entry>> {
    // SAFETY: inside `guarded` and with the writer open, by the caller's contract. The code copies the row before it
    // removes it. The copy equals the removed row, because if the row had changed in between, the removal would have
    // failed with TM_Updated.
    unsafe {
        loop {
            let Some(place) = writer.find(key, Seek::ToRemove, false) else {
                return Some(None);
            };
            let row = writer.present_row();
            match remove(writer, place) {
                Step::Done => return Some(Some(row)),
                Step::Again => {}
                Step::Unsupported => return None,
            }
        }
    }
}

/// Locks a row, so that the row cannot change between a decision based on its content and the write. Returns the
/// outcome, and the row if it is locked.
///
/// # Safety
/// Called inside `guarded`; the writer is open.
pub unsafe fn lock(
    writer: &Writer,
    mut place: pg_sys::ItemPointerData,
    seek: Seek,
) -> (Step, Option<Entry>) {
    let mode = match seek {
        Seek::ToRemove => pg_sys::LockTupleMode::LockTupleExclusive,
        _ => pg_sys::LockTupleMode::LockTupleNoKeyExclusive,
    };
    // SAFETY: the table is open and its access method's function raises or returns; `place` and `failure` live through
    // the call. The slot releases its page before the call waits.
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

/// Changes a locked row.
///
/// # Safety
/// Called inside `guarded`; the writer is open, and its slot `present` holds the row at `place`.
pub unsafe fn make(
    writer: &mut Writer,
    key: Datum,
    place: pg_sys::ItemPointerData,
    change: &RowAction,
) -> Step {
    // SAFETY: the caller's contract covers each case: the code is inside `guarded`, the writer is open, and `present`
    // holds the row.
    unsafe {
        match change {
            RowAction::Put(new) => update(writer, key, place, &new.into()),
            RowAction::Revalue(value) => {
                let (value, deadline) = (Some(*value), None);
                update(writer, key, place, &Version { value, deadline })
            }
            RowAction::Redate(deadline) => {
                let (value, deadline) = (None, Some(*deadline));
                update(writer, key, place, &Version { value, deadline })
            }
            RowAction::Remove => remove(writer, place),
            RowAction::Keep => Step::Done,
        }
    }
}

/// Makes a change under a key that has no row, where only `Put` has an effect.
///
/// # Safety
/// Called inside `guarded`; the writer is open.
pub unsafe fn make_absent(writer: &mut Writer, key: Datum, change: &RowAction) -> Step {
    match change {
        // SAFETY: inside `guarded` and with the writer open, by the caller's contract.
        RowAction::Put(new) => unsafe { insert(writer, key, new) },
        _ => Step::Done,
    }
}

/// # Safety
/// Called inside `guarded`; the writer is open, and its slot `present` holds the row at `place`.
unsafe fn update(
    writer: &mut Writer,
    key: Datum,
    mut place: pg_sys::ItemPointerData,
    new: &Version,
) -> Step {
    // SAFETY: `fresh` holds a whole row before the access method stores a copy of it.
    unsafe {
        let mut dead = writer.dead_with_present();
        if !fill(writer, key, true, new) {
            return Step::Unsupported;
        }
        let mut failure = pg_sys::TM_FailureData::default();
        let (result, which) = writer.access.update(
            writer.table,
            &mut place,
            writer.fresh,
            unguarded::GetCurrentCommandId(true),
            &mut failure,
        );
        let step = outcome(result);
        if step == Step::Done {
            if version::stays_in_page(which) {
                dead.rows = 0;
            }
            if new.value.is_none() {
                dead.toast = 0;
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

/// Inserts a row speculatively; the row becomes permanent once every index has accepted its key.
///
/// # Safety
/// Called inside `guarded`; the writer is open.
unsafe fn insert(writer: &mut Writer, key: Datum, new: &Entry) -> Step {
    // SAFETY: `fresh` holds a whole row before the access method stores a copy of it. A session that finds the
    // speculative row waits for its token, which this session holds from before the insertion to its end; an abort
    // releases the token.
    unsafe {
        if !fill(writer, key, false, &new.into()) {
            return Step::Unsupported;
        }
        let (state, result) = writer.indexes();
        let xid = unguarded::GetCurrentTransactionId();
        let token = unguarded::SpeculativeInsertionLockAcquire(xid);
        let command = unguarded::GetCurrentCommandId(true);
        writer
            .access
            .insert(writer.table, writer.fresh, command, token);
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
/// Called inside `guarded`; the writer is open, and its slot `present` holds the row at `place`.
unsafe fn remove(writer: &mut Writer, place: pg_sys::ItemPointerData) -> Step {
    // SAFETY: the slot `present` holds the row at `place`, by the caller's contract, and is read before the row's
    // removal.
    unsafe {
        let dead = writer.dead_with_present();
        let step = remove_unseen(writer, place, dead);
        if step == Step::Done {
            unguarded::CommandCounterIncrement();
        }
        step
    }
}

/// Removes a row without starting a new command, so the transaction may see the row until its next command. Callers
/// that remove many rows and know the dead bytes of each use this.
///
/// # Safety
/// Called inside `guarded`; the writer is open.
pub unsafe fn remove_unseen(
    writer: &mut Writer,
    mut place: pg_sys::ItemPointerData,
    dead: DeadBytes,
) -> Step {
    // SAFETY: the table is open, by the caller's contract; `place` and `failure` live through the call, which itself
    // waits for other writers of the row.
    unsafe {
        let mut failure = pg_sys::TM_FailureData::default();
        let step = outcome(writer.access.delete(
            writer.table,
            &mut place,
            unguarded::GetCurrentCommandId(true),
            &mut failure,
        ));
        if step == Step::Done {
            writer.dead += dead;
        }
        step
    }
}
