//! What a direct writer holds open, how it finds a row, and how it makes a new one.
//!
//! The part of `table_write` below its steps; the rules are told there.

use std::mem::size_of;
use std::ptr::null_mut;

use pgrx::pg_sys::{self, Datum};
use pgrx::varlena::{varatt_is_1b_e, varatt_is_4b_c, varatt_is_4b_u, varsize_4b};

use super::scan::{Row, copy_row, key_equals};
use super::target::Target;
use crate::pg::events::Dead;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::session::clock::Timestamp;
use crate::pg::value::datum::ValueType;
use crate::pg::value::stored::Stored;
use crate::pg::version;

/// The columns of a row that is written.
#[derive(Clone, Copy)]
pub struct New {
    pub value: Option<Stored>,
    pub deadline: Option<Timestamp>,
}

/// What is to become of a row.
#[derive(Clone, Copy)]
pub enum Change {
    Keep,
    /// A new row, or a new version of the one that is there.
    Put(New),
    /// A new version with this value and the same deadline.
    Revalue(Option<Stored>),
    /// A new version with this deadline and the same value.
    Redate(Option<Timestamp>),
    Remove,
}

/// What a new version gets; it has the rest from the row that is there.
#[derive(Clone, Copy)]
pub struct Version {
    pub value: Option<Option<Stored>>,
    pub deadline: Option<Option<Timestamp>>,
}

impl From<&New> for Version {
    #[inline(always)]
    fn from(&New { value, deadline }: &New) -> Version {
        Version {
            value: Some(value),
            deadline: Some(deadline),
        }
    }
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
pub struct Writer<'t> {
    pub target: &'t Target,
    pub table: pg_sys::Relation,
    pub access: Access,
    /// The row that was found.
    pub present: *mut pg_sys::TupleTableSlot,
    /// The row that is written.
    pub fresh: *mut pg_sys::TupleTableSlot,
    index: pg_sys::Relation,
    /// Of the column as it is while the table is open.
    value_type: ValueType,
    /// The executor's description of the table and its indexes, from the first time that it is needed.
    executor: Option<(*mut pg_sys::EState, *mut pg_sys::ResultRelInfo)>,
    /// What it has left to VACUUM so far.
    pub dead: Dead,
}

impl<'t> Writer<'t> {
    /// The same as `open`, for a writer that outlives one sequence.
    pub fn of(target: &'t Target) -> Option<Writer<'t>> {
        // SAFETY: a sequence of plain values.
        unsafe { guarded(|| Writer::open(target)) }
    }

    /// Opens the table and the index of its primary key; None where that is not in use (any more), or the
    /// table no longer what the target says.
    ///
    /// # Safety
    /// Inside of `guarded`; the caller holds RowExclusiveLock on the table.
    pub unsafe fn open(target: &'t Target) -> Option<Writer<'t>> {
        // SAFETY: the relations exist as long as the caller's lock is held. The index's lock is kept
        // until the transaction ends, as that of any index that was written to.
        unsafe {
            unguarded::CommandCounterIncrement();
            let table = unguarded::table_open(target.relation, pg_sys::NoLock as i32);
            let index = unguarded::index_open(target.index, pg_sys::RowExclusiveLock as i32);
            let form = (*index).rd_index;
            let in_use = (*form).indisvalid && (*form).indisready;
            let value_type = target.value_type(table, index);
            let (Some(access), Some(value_type), true) = (Access::of(table), value_type, in_use)
            else {
                unguarded::index_close(index, pg_sys::NoLock as i32);
                unguarded::table_close(table, pg_sys::NoLock as i32);
                return None;
            };
            let descriptor = (*table).rd_att;
            Some(Writer {
                target,
                table,
                access,
                present: unguarded::MakeSingleTupleTableSlot(
                    descriptor,
                    &raw const pg_sys::TTSOpsBufferHeapTuple,
                ),
                fresh: unguarded::MakeSingleTupleTableSlot(
                    descriptor,
                    &raw const pg_sys::TTSOpsVirtual,
                ),
                index,
                value_type,
                executor: None,
                dead: Dead::default(),
            })
        }
    }

    /// Gives everything back, the locks stay; tells what is dead.
    pub fn close(&self) {
        // SAFETY: a sequence of plain values; nothing of the writer is used afterwards.
        let dead = unsafe { guarded(|| self.end()) };
        dead.tell(self.target.relation);
    }

    /// What is dead once the row in the slot `present` is gone.
    ///
    /// # Safety
    /// Inside of `guarded`; the slot holds a row of the target.
    #[inline(always)]
    pub unsafe fn dead_with_present(&self) -> Dead {
        // SAFETY: as the caller says; a target's value is of one of our types.
        unsafe { Dead::with_row(self.present, self.target.value) }
    }

    /// The same inside of `guarded`; what is dead is told afterwards.
    ///
    /// # Safety
    /// As `close`, inside of `guarded`.
    pub unsafe fn end(&self) -> Dead {
        // SAFETY: each was opened by `open` or `indexes`.
        unsafe {
            if let Some((state, result)) = self.executor {
                unguarded::ExecCloseIndices(result);
                unguarded::FreeExecutorState(state);
            }
            unguarded::ExecDropSingleTupleTableSlot(self.present);
            unguarded::ExecDropSingleTupleTableSlot(self.fresh);
            unguarded::index_close(self.index, pg_sys::NoLock as i32);
            unguarded::table_close(self.table, pg_sys::NoLock as i32);
        }
        self.dead
    }

    /// The executor's own description of the table and its indexes, as much of it as index entries need.
    ///
    /// # Safety
    /// Inside of `guarded`; the writer is open.
    pub unsafe fn indexes(&mut self) -> (*mut pg_sys::EState, *mut pg_sys::ResultRelInfo) {
        if let Some(executor) = self.executor {
            return executor;
        }
        // SAFETY: the node is zeroed and gets its tag, as makeNode would do. It stands in no range
        // table (number 0), so nothing is looked up there. What is allocated belongs to the state,
        // however many rows follow; an error puts the memory context back.
        unsafe {
            let state = unguarded::CreateExecutorState();
            let context = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = (*state).es_query_cxt;
            let size = size_of::<pg_sys::ResultRelInfo>();
            let result: *mut pg_sys::ResultRelInfo =
                unguarded::MemoryContextAllocZero((*state).es_query_cxt, size).cast();
            (*result).type_ = pg_sys::NodeTag::T_ResultRelInfo;
            unguarded::InitResultRelInfo(result, self.table, 0, null_mut(), 0);
            unguarded::ExecOpenIndices(result, false);
            pg_sys::CurrentMemoryContext = context;
            self.executor = Some((state, result));
            (state, result)
        }
    }

    /// Our columns of the row in the slot `present`, which lets go of its page.
    ///
    /// # Safety
    /// Inside of `guarded`; the slot holds a row of the target.
    pub unsafe fn present_row(&self) -> Row {
        // SAFETY: as the caller says.
        unsafe {
            unguarded::materialize_slot(self.present);
            copy_row(self.present, self.target, self.value_type)
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
                unguarded::check_for_interrupts();
                let mut dirty = pg_sys::SnapshotData {
                    snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
                    ..Default::default()
                };
                let snapshot = match seek {
                    Seek::Any => &raw mut dirty,
                    Seek::Visible | Seek::ToRemove => {
                        unguarded::RegisterSnapshot(unguarded::GetTransactionSnapshot())
                    }
                };
                let scan = version::index_beginscan(self.table, self.index, snapshot);
                let mut by_key = key_equals(key);
                unguarded::index_rescan(scan, &mut by_key, 1, null_mut(), 0);
                let forward = pg_sys::ScanDirection::ForwardScanDirection;
                let found = unguarded::index_getnext_slot(scan, forward, self.present);
                unguarded::index_endscan(scan);
                if seek != Seek::Any {
                    unguarded::UnregisterSnapshot(snapshot);
                }
                if !found {
                    unguarded::clear_slot(self.present);
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
            unguarded::clear_slot(self.present);
            if dirty.speculativeToken != 0 {
                unguarded::SpeculativeInsertionWait(dirty.xmin, dirty.speculativeToken);
            } else {
                let why = pg_sys::XLTW_Oper::XLTW_InsertIndex;
                unguarded::XactLockTableWait(whom, self.table, &mut place, why);
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

/// Fills the slot `fresh`. A row that is updated keeps the user's own columns, and what there is no `new`
/// one of; in a row that is inserted they are NULL, as dropped columns always are. False, and nothing is
/// filled, where the value is of another type than the column.
///
/// # Safety
/// Inside of `guarded`; the writer is open. With `updates` the slot `present` holds the row, and holds it
/// until the new one is written.
pub unsafe fn fill(writer: &Writer, key: Datum, updates: bool, new: &Version) -> bool {
    let Writer {
        target,
        present,
        fresh,
        value_type,
        ..
    } = *writer;
    if let Some(Some(value)) = new.value
        && value.value_type() != value_type
    {
        return false;
    }
    // SAFETY: the arrays of the slot have as many elements as the table has columns; numbers of
    // columns are below that.
    unsafe {
        unguarded::clear_slot(fresh);
        for at in 0..target.columns as usize {
            *(*fresh).tts_isnull.add(at) = true;
        }
        put_column(fresh, target.key, Some(key));
        let keeps = new.value.is_none() || new.deadline.is_none();
        if updates && (keeps || !target.more.is_empty() || is_long(key)) {
            unguarded::materialize_slot(present);
            for column in [target.key, target.value, target.deadline] {
                put_column(fresh, column, unguarded::column(present, column));
            }
            for &column in &target.more {
                put_column(fresh, column, unguarded::column(present, column));
            }
        } else {
            unguarded::clear_slot(present);
        }
        if let Some(value) = new.value {
            put_column(fresh, target.value, value.map(Stored::raw));
        }
        if let Some(deadline) = new.deadline {
            put_column(fresh, target.deadline, deadline.map(Datum::from));
        }
        unguarded::ExecStoreVirtualTuple(fresh);
    }
    true
}

/// Whether a key's stored form may differ from this one, compressed for example: then the row keeps its
/// own, or the update would count as one of the key and be entered into the index again.
///
/// # Safety
/// `key` is a varlena.
#[inline(always)]
unsafe fn is_long(key: Datum) -> bool {
    /// With its header, the longest that is always stored with a header of one byte.
    const SHORT: usize = 130;
    let varlena: *const pg_sys::varlena = key.cast_mut_ptr();
    // SAFETY: reads the header.
    unsafe {
        varatt_is_1b_e(varlena)
            || varatt_is_4b_c(varlena)
            || (varatt_is_4b_u(varlena) && varsize_4b(varlena) > SHORT)
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
