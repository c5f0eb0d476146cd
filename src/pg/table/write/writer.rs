//! The open relations and slots of a direct write, and its search for the row to change.
//!
//! `write` states the rules for direct writes, and `step` uses the writer to change rows.

use std::mem::size_of;
use std::ptr::null_mut;

use pgrx::pg_sys::{self, Datum};

use crate::pg::events::DeadBytes;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::table::index_read::{copy_row, key_equals};
use crate::pg::table::target::Target;
use crate::pg::value::datum::ValueType;
use crate::pg::value::stored::Entry;
use crate::pg::version::{self, Access};

/// The row that a search finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The row with which an insertion would conflict. If the row is uncommitted, the search waits for its transaction.
    Any,
    /// The row that a statement beginning now sees, to be overwritten.
    Visible,
    /// The row that a statement beginning now sees, to be removed.
    ToRemove,
}

/// A table that is open for writes by key. Consists of plain pointers, without a destructor; after an error the abort
/// closes the objects to which they point.
#[derive(Clone, Copy)]
pub struct Writer<'t> {
    pub target: &'t Target,
    pub table: pg_sys::Relation,
    pub access: Access,
    /// The row that the search has found.
    pub present: *mut pg_sys::TupleTableSlot,
    /// The row to write.
    pub fresh: *mut pg_sys::TupleTableSlot,
    index: pg_sys::Relation,
    /// The type of the column `value` while the table is open.
    pub(super) value_type: ValueType,
    /// The executor's description of the table and its indexes, created at its first use.
    executor: Option<(*mut pg_sys::EState, *mut pg_sys::ResultRelInfo)>,
    /// The dead bytes that the writer has left to VACUUM so far.
    pub dead: DeadBytes,
}

impl<'t> Writer<'t> {
    /// Opens a writer that outlives one `guarded` sequence. Returns None in the same cases as `open`.
    pub fn of(target: &'t Target) -> Option<Writer<'t>> {
        // SAFETY: a sequence of plain values; callers of `write` hold RowExclusiveLock on the table.
        unsafe { guarded(|| Writer::open(target)) }
    }

    /// Opens the table and the index of its primary key. Returns None if the index is not in use, or if the table no
    /// longer matches the target.
    ///
    /// # Safety
    /// Called inside `guarded`; the caller holds RowExclusiveLock on the table.
    pub unsafe fn open(target: &'t Target) -> Option<Writer<'t>> {
        // SAFETY: the relations exist as long as the caller's lock is held. The lock on the index stays until the
        // transaction ends, as for any index that was written.
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
                dead: DeadBytes::default(),
            })
        }
    }

    /// Releases everything except the locks, and emits the dead bytes.
    pub fn close(&self) {
        // SAFETY: a sequence of plain values; the caller does not use the writer afterwards.
        let dead = unsafe { guarded(|| self.end()) };
        dead.emit(self.target.relation);
    }

    /// Returns the bytes that become dead when the row in the slot `present` is removed.
    ///
    /// # Safety
    /// Called inside `guarded`; the slot holds a row of the target.
    #[inline(always)]
    pub unsafe fn dead_with_present(&self) -> DeadBytes {
        // SAFETY: the slot holds a row of the target, by the caller's contract, whose column `value` has a value type
        // of pgcache, and so is a varlena.
        unsafe { DeadBytes::with_row(self.present, self.target.value) }
    }

    /// Releases everything except the locks, inside a `guarded` sequence. Returns the dead bytes, which the caller
    /// emits afterwards.
    ///
    /// # Safety
    /// Called inside `guarded`; the caller does not use the writer afterwards.
    pub unsafe fn end(&self) -> DeadBytes {
        // SAFETY: `open` or `indexes` opened each object.
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

    /// Returns the executor's description of the table and its indexes, with the fields that inserting index entries
    /// needs. Creates it at the first call.
    ///
    /// # Safety
    /// Called inside `guarded`; the writer is open.
    pub unsafe fn indexes(&mut self) -> (*mut pg_sys::EState, *mut pg_sys::ResultRelInfo) {
        if let Some(executor) = self.executor {
            return executor;
        }
        // SAFETY: the node is zeroed and gets its tag, as makeNode would do. Its range table number is 0, so Postgres
        // looks up no entry for it. Allocations belong to the state, however many rows follow; after an error the abort
        // restores the memory context.
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

    /// Returns the entry in the slot `present`, and makes the slot release its page.
    ///
    /// # Safety
    /// Called inside `guarded`; the slot holds a row of the target.
    pub unsafe fn present_row(&self) -> Entry {
        // SAFETY: the slot holds a row, by the caller's contract, so the slot can copy the row; its value has the type
        // that the column had when the table was opened, and the table is still open.
        unsafe {
            unguarded::materialize_slot(self.present);
            copy_row(self.present, self.target, self.value_type)
        }
    }

    /// Returns the position of the row under this key, or None if no row exists. After the call the slot `present`
    /// holds the row, without a pinned page. With [`Seek::Any`] the call waits for a transaction that is inserting the
    /// row, and with `decided` also for a transaction that is changing it.
    ///
    /// # Safety
    /// Called inside `guarded`; the writer is open.
    pub unsafe fn find(
        &self,
        key: Datum,
        seek: Seek,
        decided: bool,
    ) -> Option<pg_sys::ItemPointerData> {
        // SAFETY: a dirty snapshot consists of a type and room for results, and lives as long as the scan; any other
        // snapshot is registered as long. The scan ends before any wait.
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
                let mut by_key = key_equals(self.target, key);
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

    /// If a transaction in progress decides whether the row of a dirty scan exists, waits for it and returns true;
    /// otherwise returns false.
    ///
    /// # Safety
    /// Called inside `guarded`, with no scan open.
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
        // SAFETY: the slot releases its page first. For a speculative row, waiting for its token is shorter than
        // waiting for its transaction, because the insertion ends long before the transaction.
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
