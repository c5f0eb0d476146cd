//! Begins index scans, inserts the index entries of new rows, and reads the transaction that inserted a row.

use pgrx::pg_sys;

/// Unguarded functions whose arguments differ between versions. `memory::unguarded` has the rules for their use.
mod differing {
    use pgrx::pg_sys::*;

    unsafe extern "C-unwind" {
        pub fn index_beginscan(
            table: Relation,
            index: Relation,
            snapshot: Snapshot,
            #[cfg(any(feature = "pg18", feature = "pg19"))]
            instrument: *mut IndexScanInstrumentation,
            keys: i32,
            orderings: i32,
            #[cfg(feature = "pg19")] flags: u32,
        ) -> IndexScanDesc;
        #[cfg(not(feature = "pg19"))]
        pub fn ExecInsertIndexTuples(
            result: *mut ResultRelInfo,
            slot: *mut TupleTableSlot,
            state: *mut EState,
            update: bool,
            no_duplicate_error: bool,
            conflict: *mut bool,
            arbiters: *mut List,
            #[cfg(not(feature = "pg15"))] only_summarizing: bool,
        ) -> *mut List;
        #[cfg(feature = "pg19")]
        pub fn ExecInsertIndexTuples(
            result: *mut ResultRelInfo,
            state: *mut EState,
            flags: u32,
            slot: *mut TupleTableSlot,
            arbiters: *mut List,
            conflict: *mut bool,
        ) -> *mut List;
    }
}

/// Begins a scan with one key.
///
/// # Safety
/// Called inside `unguarded::guarded`; the relations are open, the snapshot outlives the scan.
#[inline(always)]
pub unsafe fn index_beginscan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
) -> pg_sys::IndexScanDesc {
    // SAFETY: the caller is inside `guarded`; both relations are open and the snapshot outlives the scan. From Postgres
    // 18 on, NULL means that Postgres does not instrument the scan.
    unsafe {
        differing::index_beginscan(
            table,
            index,
            snapshot,
            #[cfg(any(feature = "pg18", feature = "pg19"))]
            std::ptr::null_mut(),
            1,
            0,
            #[cfg(feature = "pg19")]
            0,
        )
    }
}

/// The indexes that need an entry for the new row of an update: a flag, or from 16 on one of three cases.
#[cfg(feature = "pg15")]
pub type UpdateIndexes = bool;
/// The indexes that need an entry for the new row of an update: a flag, or from 16 on one of three cases.
#[cfg(not(feature = "pg15"))]
pub type UpdateIndexes = pg_sys::TU_UpdateIndexes::Type;

/// Returns whether the new row of an update needs an entry in any index.
pub fn enters_indexes(which: UpdateIndexes) -> bool {
    #[cfg(feature = "pg15")]
    return which;
    #[cfg(not(feature = "pg15"))]
    return which != pg_sys::TU_UpdateIndexes::TU_None;
}

/// Returns whether the new row is in the old row's page and at most summarizing indexes need an entry for it (a HOT
/// update).
pub fn stays_in_page(which: UpdateIndexes) -> bool {
    #[cfg(feature = "pg15")]
    return !which;
    #[cfg(not(feature = "pg15"))]
    return which != pg_sys::TU_UpdateIndexes::TU_All;
}

/// How a row is added to the indexes of its table.
#[derive(Clone, Copy, Default)]
struct Entry {
    is_update: bool,
    /// Whether to report that another row already has the key, instead of raising an error.
    reports_conflict: bool,
    #[cfg_attr(feature = "pg15", expect(dead_code, reason = "from 16 on"))]
    only_summarizing: bool,
}

/// Adds a row to the indexes of its table. Returns false if another row already has its key.
///
/// # Safety
/// Called inside `unguarded::guarded`; `result` has its indexes open, `slot` holds the row and its place.
unsafe fn enter(
    result: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
    entry: Entry,
) -> bool {
    let mut conflict = false;
    let arbiters = std::ptr::null_mut();
    // SAFETY: the caller is inside `guarded`; the indexes of `result` are open, the slot holds the row and its place,
    // and `conflict` lives through the call. Postgres writes it only if it is requested to report a conflict.
    unsafe {
        #[cfg(not(feature = "pg19"))]
        differing::ExecInsertIndexTuples(
            result,
            slot,
            state,
            entry.is_update,
            entry.reports_conflict,
            &mut conflict,
            arbiters,
            #[cfg(not(feature = "pg15"))]
            entry.only_summarizing,
        );
        #[cfg(feature = "pg19")]
        differing::ExecInsertIndexTuples(
            result,
            state,
            // EIIT_IS_UPDATE, EIIT_NO_DUPE_ERROR and EIIT_ONLY_SUMMARIZING of executor/executor.h.
            u32::from(entry.is_update)
                | u32::from(entry.reports_conflict) << 1
                | u32::from(entry.only_summarizing) << 2,
            slot,
            arbiters,
            &mut conflict,
        );
    }
    !conflict
}

/// Adds a speculatively inserted row to the indexes. Returns false if another row already has its key.
///
/// # Safety
/// Called inside `unguarded::guarded`; `result` has its indexes open, `slot` holds the row and its place.
pub unsafe fn enter_inserted(
    result: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
) -> bool {
    let entry = Entry {
        reports_conflict: true,
        ..Entry::default()
    };
    // SAFETY: by the caller's contract.
    unsafe { enter(result, slot, state, entry) }
}

/// Adds the new version of an updated row to the indexes.
///
/// # Safety
/// Called inside `unguarded::guarded`; as in `enter_inserted`.
pub unsafe fn enter_updated(
    result: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
    which: UpdateIndexes,
) {
    let entry = Entry {
        is_update: true,
        only_summarizing: only_summarizing(which),
        ..Entry::default()
    };
    // SAFETY: by the caller's contract.
    unsafe { enter(result, slot, state, entry) };
}

#[cfg(feature = "pg15")]
fn only_summarizing(_which: UpdateIndexes) -> bool {
    false
}

#[cfg(not(feature = "pg15"))]
fn only_summarizing(which: UpdateIndexes) -> bool {
    which == pg_sys::TU_UpdateIndexes::TU_Summarizing
}

/// Returns the transaction that inserted a row; FrozenTransactionId for a frozen row.
///
/// # Safety
/// `row` is the header of a row.
pub unsafe fn inserted_by(row: pg_sys::HeapTupleHeader) -> pg_sys::TransactionId {
    let frozen = (pg_sys::HEAP_XMIN_COMMITTED | pg_sys::HEAP_XMIN_INVALID) as u16;
    // SAFETY: a row of a table has the fields of the heap in its header.
    unsafe {
        match (*row).t_infomask & frozen == frozen {
            true => pg_sys::FrozenTransactionId,
            false => (*row).t_choice.t_heap.t_xmin,
        }
    }
}
