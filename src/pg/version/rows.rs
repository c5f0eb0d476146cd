//! Rows and their indexes: a scan begun, and new rows entered.

use pgrx::pg_sys;

/// Unguarded forms of functions whose arguments differ; see `memory::unguarded` for the rules.
mod differing {
    use pgrx::pg_sys::*;

    unsafe extern "C-unwind" {
        pub fn index_beginscan(
            table: Relation,
            index: Relation,
            snapshot: Snapshot,
            #[cfg(feature = "pg18")] instrument: *mut IndexScanInstrumentation,
            keys: i32,
            orderings: i32,
        ) -> IndexScanDesc;
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
    }
}

/// Begins a scan with one key.
///
/// # Safety
/// Inside of `unguarded::guarded`; the relations are open, the snapshot outlives the scan.
#[inline(always)]
pub unsafe fn index_beginscan(
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
) -> pg_sys::IndexScanDesc {
    // SAFETY: the caller is inside of `guarded`; both relations are open and the snapshot outlives
    // the scan. From 18 on NULL: nobody counts what the scan does.
    unsafe {
        differing::index_beginscan(
            table,
            index,
            snapshot,
            #[cfg(feature = "pg18")]
            std::ptr::null_mut(),
            1,
            0,
        )
    }
}

/// Which indexes an update must enter the new row into: a flag, or from 16 on one of three cases.
#[cfg(feature = "pg15")]
pub type UpdateIndexes = bool;
/// Which indexes an update must enter the new row into: a flag, or from 16 on one of three cases.
#[cfg(not(feature = "pg15"))]
pub type UpdateIndexes = pg_sys::TU_UpdateIndexes::Type;

/// Whether an update must enter the new row into any index.
pub fn enters_indexes(which: UpdateIndexes) -> bool {
    #[cfg(feature = "pg15")]
    return which;
    #[cfg(not(feature = "pg15"))]
    return which != pg_sys::TU_UpdateIndexes::TU_None;
}

/// Whether the new row is in the old one's page, and only summarizing indexes know it (HOT).
pub fn stays_in_page(which: UpdateIndexes) -> bool {
    #[cfg(feature = "pg15")]
    return !which;
    #[cfg(not(feature = "pg15"))]
    return which != pg_sys::TU_UpdateIndexes::TU_All;
}

/// Enters a row that was inserted speculatively; false when somebody else has its key.
///
/// # Safety
/// Inside of `unguarded::guarded`; `result` has its indexes open, `slot` the row and its place.
pub unsafe fn enter_inserted(
    result: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
) -> bool {
    let mut conflict = false;
    // SAFETY: the caller is inside of `guarded`; the indexes of `result` are open, the slot holds
    // the row and its place, and `conflict` lives through the call.
    unsafe {
        differing::ExecInsertIndexTuples(
            result,
            slot,
            state,
            false,
            true,
            &mut conflict,
            std::ptr::null_mut(),
            #[cfg(not(feature = "pg15"))]
            false,
        );
    }
    !conflict
}

/// Enters the new version of a row that was updated.
///
/// # Safety
/// Inside of `unguarded::guarded`; as in `enter_inserted`.
pub unsafe fn enter_updated(
    result: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    state: *mut pg_sys::EState,
    _which: UpdateIndexes,
) {
    // SAFETY: the caller is inside of `guarded`; the indexes of `result` are open, and the slot
    // holds the new version and its place. No index is asked to report a conflict, so NULL is never
    // written to.
    unsafe {
        differing::ExecInsertIndexTuples(
            result,
            slot,
            state,
            true,
            false,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            #[cfg(not(feature = "pg15"))]
            {
                _which == pg_sys::TU_UpdateIndexes::TU_Summarizing
            },
        );
    }
}
