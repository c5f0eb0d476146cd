//! What a direct writer holds open, how it finds a row, and how it makes a new one.
//!
//! The part of `table_write` below its decisions; the rules are told there.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, Datum};

use super::clock::Timestamp;
use super::raw::{self, guarded};
use super::table_scan::{Row, copy_row, key_equals};
use super::table_target::Target;
use super::version;

/// The columns of a row that is written.
#[derive(Clone, Copy)]
pub struct New {
    pub value: Option<Datum>,
    pub deadline: Option<Timestamp>,
}

/// Which rows a search finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Whatever an insertion would conflict with, once it is certain.
    Any,
    /// What a statement that begins now sees, to overwrite it.
    Visible,
    /// The same, to remove it.
    ToRemove,
}

/// The table's own way to change rows, looked up once.
#[derive(Clone, Copy)]
pub struct Access {
    pub insert: unsafe extern "C-unwind" fn(
        pg_sys::Relation,
        *mut pg_sys::TupleTableSlot,
        pg_sys::CommandId,
        i32,
        *mut pg_sys::BulkInsertStateData,
        u32,
    ),
    pub update: unsafe extern "C-unwind" fn(
        pg_sys::Relation,
        pg_sys::ItemPointer,
        *mut pg_sys::TupleTableSlot,
        pg_sys::CommandId,
        pg_sys::Snapshot,
        pg_sys::Snapshot,
        bool,
        *mut pg_sys::TM_FailureData,
        *mut pg_sys::LockTupleMode::Type,
        *mut version::UpdateIndexes,
    ) -> pg_sys::TM_Result::Type,
    pub delete: unsafe extern "C-unwind" fn(
        pg_sys::Relation,
        pg_sys::ItemPointer,
        pg_sys::CommandId,
        pg_sys::Snapshot,
        pg_sys::Snapshot,
        bool,
        *mut pg_sys::TM_FailureData,
        bool,
    ) -> pg_sys::TM_Result::Type,
    pub lock: unsafe extern "C-unwind" fn(
        pg_sys::Relation,
        pg_sys::ItemPointer,
        pg_sys::Snapshot,
        *mut pg_sys::TupleTableSlot,
        pg_sys::CommandId,
        pg_sys::LockTupleMode::Type,
        pg_sys::LockWaitPolicy::Type,
        u8,
        *mut pg_sys::TM_FailureData,
    ) -> pg_sys::TM_Result::Type,
}

/// A table that is open to be written by key. Plain pointers: after an error the abort closes them.
#[derive(Clone, Copy)]
pub struct Writer {
    pub table: pg_sys::Relation,
    pub access: Access,
    /// The row that was found.
    pub present: *mut pg_sys::TupleTableSlot,
    /// The row that is written.
    pub fresh: *mut pg_sys::TupleTableSlot,
    index: pg_sys::Relation,
    columns: i16,
}

impl Writer {
    /// The same as `open`, for a writer that outlives one sequence.
    pub fn of(target: &Target) -> Option<Writer> {
        // SAFETY: a sequence of plain values.
        unsafe { guarded(|| Writer::open(target)) }
    }

    /// Opens the table and the index of its primary key; None where that is not in use (any more).
    ///
    /// # Safety
    /// Inside of `guarded`; the caller holds RowExclusiveLock on the table.
    pub unsafe fn open(target: &Target) -> Option<Writer> {
        // SAFETY: the relations exist as long as the caller's lock is held. The index's lock is kept
        // until the transaction ends, as that of any index that was written to.
        unsafe {
            raw::CommandCounterIncrement();
            let table = raw::table_open(target.relation, pg_sys::NoLock as i32);
            let index = raw::index_open(target.index, pg_sys::RowExclusiveLock as i32);
            let form = (*index).rd_index;
            let access = Access::of(table);
            let (Some(access), true) = (access, (*form).indisvalid && (*form).indisready) else {
                raw::index_close(index, pg_sys::NoLock as i32);
                raw::table_close(table, pg_sys::NoLock as i32);
                return None;
            };
            let descriptor = (*table).rd_att;
            Some(Writer {
                table,
                access,
                present: raw::MakeSingleTupleTableSlot(
                    descriptor,
                    &raw const pg_sys::TTSOpsBufferHeapTuple,
                ),
                fresh: raw::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual),
                index,
                columns: target.columns,
            })
        }
    }

    /// Gives everything back; the locks stay.
    pub fn close(&self) {
        // SAFETY: a sequence of plain values; nothing of the writer is used afterwards.
        unsafe { guarded(|| self.end()) }
    }

    /// # Safety
    /// As `close`, inside of `guarded`.
    pub unsafe fn end(&self) {
        // SAFETY: each was opened by `open`.
        unsafe {
            raw::ExecDropSingleTupleTableSlot(self.present);
            raw::ExecDropSingleTupleTableSlot(self.fresh);
            raw::index_close(self.index, pg_sys::NoLock as i32);
            raw::table_close(self.table, pg_sys::NoLock as i32);
        }
    }

    /// Our columns of the row in the slot `present`, which lets go of its page.
    ///
    /// # Safety
    /// Inside of `guarded`; the slot holds a row of the target.
    pub unsafe fn present_row(&self, target: &Target) -> Row {
        // SAFETY: as the caller says.
        unsafe {
            raw::materialize_slot(self.present);
            copy_row(self.present, target)
        }
    }

    /// Where the row with this key is. The slot `present` holds it afterwards, without a page pinned.
    /// With [`Seek::Any`] a transaction that has inserted the row is waited for; for a row that must be
    /// `decided`, one that is changing it, too.
    ///
    /// # Safety
    /// Inside of `guarded`; the writer is open.
    pub unsafe fn find(
        &self,
        key: Datum,
        seek: Seek,
        decided: bool,
    ) -> Option<pg_sys::ItemPointerData> {
        // SAFETY: a dirty snapshot is a type and room for answers, which lives as long as the scan;
        // another one is registered as long. The scan ends before anything is waited for.
        unsafe {
            loop {
                let mut dirty = pg_sys::SnapshotData {
                    snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
                    ..Default::default()
                };
                let snapshot = match seek {
                    Seek::Any => &raw mut dirty,
                    Seek::Visible | Seek::ToRemove => {
                        raw::RegisterSnapshot(raw::GetTransactionSnapshot())
                    }
                };
                let scan = version::index_beginscan(self.table, self.index, snapshot);
                let mut by_key = key_equals(key);
                raw::index_rescan(scan, &mut by_key, 1, null_mut(), 0);
                let forward = pg_sys::ScanDirection::ForwardScanDirection;
                let found = raw::index_getnext_slot(scan, forward, self.present);
                raw::index_endscan(scan);
                if seek != Seek::Any {
                    raw::UnregisterSnapshot(snapshot);
                }
                if !found {
                    raw::clear_slot(self.present);
                    return None;
                }
                let place = (*self.present).tts_tid;
                if self.has_waited(&dirty, place, decided) {
                    continue;
                }
                return Some(place);
            }
        }
    }

    /// Waits for the transaction that decides whether the row of a dirty scan is there; false when
    /// there is none.
    ///
    /// # Safety
    /// Inside of `guarded`, with no scan open.
    unsafe fn has_waited(
        &self,
        dirty: &pg_sys::SnapshotData,
        mut place: pg_sys::ItemPointerData,
        decided: bool,
    ) -> bool {
        let none = pg_sys::InvalidTransactionId;
        let whom = match (dirty.xmin != none, decided) {
            (true, _) => dirty.xmin,
            (false, true) => dirty.xmax,
            (false, false) => none,
        };
        if whom == none {
            return false;
        }
        // SAFETY: the slot lets go of its page first. A speculative row is decided long before its
        // transaction ends.
        unsafe {
            raw::clear_slot(self.present);
            if dirty.speculativeToken != 0 {
                raw::SpeculativeInsertionWait(dirty.xmin, dirty.speculativeToken);
            } else {
                let why = pg_sys::XLTW_Oper::XLTW_InsertIndex;
                raw::XactLockTableWait(whom, self.table, &mut place, why);
            }
        }
        true
    }
}

impl Access {
    /// # Safety
    /// The table is open.
    unsafe fn of(table: pg_sys::Relation) -> Option<Access> {
        // SAFETY: a table has an access method, whose functions live as long as the process.
        unsafe {
            let methods = (*table).rd_tableam.as_ref()?;
            Some(Access {
                insert: methods.tuple_insert_speculative?,
                update: methods.tuple_update?,
                delete: methods.tuple_delete?,
                lock: methods.tuple_lock?,
            })
        }
    }
}

/// Fills the slot `fresh`. A row that is updated keeps the user's own columns, and its value too when
/// there is no `new` one; in a row that is inserted they are NULL, as dropped columns always are.
///
/// # Safety
/// Inside of `guarded`; the writer is open on this target. With `updates` the slot `present` holds the
/// row, and holds it until the new one is written.
pub unsafe fn fill(
    writer: &Writer,
    target: &Target,
    key: Datum,
    updates: bool,
    new: Option<&New>,
    redate: Option<Option<Timestamp>>,
) {
    // SAFETY: the arrays of the slot have as many elements as the table has columns; numbers of
    // columns are below that.
    unsafe {
        raw::clear_slot(writer.fresh);
        for at in 0..writer.columns as usize {
            *(*writer.fresh).tts_isnull.add(at) = true;
        }
        if updates {
            if !target.more.is_empty() {
                raw::materialize_slot(writer.present);
                for &column in &target.more {
                    put_column(writer.fresh, column, raw::column(writer.present, column));
                }
            }
            if new.is_none() {
                let value = raw::column(writer.present, target.value);
                put_column(writer.fresh, target.value, value);
            } else if target.more.is_empty() {
                raw::clear_slot(writer.present);
            }
        }
        put_column(writer.fresh, target.key, Some(key));
        if let Some(new) = new {
            put_column(writer.fresh, target.value, new.value);
        }
        let deadline = redate.unwrap_or(new.and_then(|new| new.deadline));
        put_column(writer.fresh, target.deadline, deadline.map(Datum::from));
        raw::ExecStoreVirtualTuple(writer.fresh);
    }
}

/// # Safety
/// Inside of `guarded`; the slot has a column of this number.
#[inline(always)]
unsafe fn put_column(slot: *mut pg_sys::TupleTableSlot, number: i16, datum: Option<Datum>) {
    let at = number as usize - 1;
    // SAFETY: as the caller says.
    unsafe {
        *(*slot).tts_isnull.add(at) = datum.is_none();
        *(*slot).tts_values.add(at) = datum.unwrap_or(Datum::null());
    }
}
