//! Calls the functions of a table's access method that insert, update and delete a row, with the arguments that pgcache
//! always passes. The signatures of these functions differ between versions.

use std::ptr::null_mut;

use pgrx::pg_sys;

use super::UpdateIndexes;

/// The functions of a table's access method, looked up once.
#[derive(Clone, Copy)]
pub struct Access {
    insert: unsafe extern "C-unwind" fn(
        pg_sys::Relation,
        *mut pg_sys::TupleTableSlot,
        pg_sys::CommandId,
        InsertOptions,
        *mut pg_sys::BulkInsertStateData,
        u32,
    ),
    update: Update,
    delete: Delete,
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

#[cfg(not(feature = "pg19"))]
type InsertOptions = i32;
#[cfg(feature = "pg19")]
type InsertOptions = u32;

#[cfg(not(feature = "pg19"))]
type Update = unsafe extern "C-unwind" fn(
    pg_sys::Relation,
    pg_sys::ItemPointer,
    *mut pg_sys::TupleTableSlot,
    pg_sys::CommandId,
    pg_sys::Snapshot,
    pg_sys::Snapshot,
    bool,
    *mut pg_sys::TM_FailureData,
    *mut pg_sys::LockTupleMode::Type,
    *mut UpdateIndexes,
) -> pg_sys::TM_Result::Type;
/// The function that updates a row. From Postgres 19 on it has an argument for options.
#[cfg(feature = "pg19")]
type Update = unsafe extern "C-unwind" fn(
    pg_sys::Relation,
    pg_sys::ItemPointer,
    *mut pg_sys::TupleTableSlot,
    pg_sys::CommandId,
    u32,
    pg_sys::Snapshot,
    pg_sys::Snapshot,
    bool,
    *mut pg_sys::TM_FailureData,
    *mut pg_sys::LockTupleMode::Type,
    *mut UpdateIndexes,
) -> pg_sys::TM_Result::Type;

/// The function that deletes a row. The last argument says whether the row moves to another partition.
#[cfg(not(feature = "pg19"))]
type Delete = unsafe extern "C-unwind" fn(
    pg_sys::Relation,
    pg_sys::ItemPointer,
    pg_sys::CommandId,
    pg_sys::Snapshot,
    pg_sys::Snapshot,
    bool,
    *mut pg_sys::TM_FailureData,
    bool,
) -> pg_sys::TM_Result::Type;
/// The function that deletes a row. From Postgres 19 on a flag in the fourth argument says whether the row moves to
/// another partition.
#[cfg(feature = "pg19")]
type Delete = unsafe extern "C-unwind" fn(
    pg_sys::Relation,
    pg_sys::ItemPointer,
    pg_sys::CommandId,
    u32,
    pg_sys::Snapshot,
    pg_sys::Snapshot,
    bool,
    *mut pg_sys::TM_FailureData,
) -> pg_sys::TM_Result::Type;

impl Access {
    /// Returns the functions of an open table; None if one of them is missing.
    ///
    /// # Safety
    /// The table is open.
    pub unsafe fn of(table: pg_sys::Relation) -> Option<Access> {
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

    /// Inserts a row speculatively.
    ///
    /// # Safety
    /// Called inside `unguarded::guarded`; `self` comes from this table, the slot holds a row of it, and the session
    /// holds the token.
    pub unsafe fn insert(
        &self,
        table: pg_sys::Relation,
        slot: *mut pg_sys::TupleTableSlot,
        command: pg_sys::CommandId,
        token: u32,
    ) {
        // SAFETY: by the caller's contract.
        unsafe { (self.insert)(table, slot, command, 0, null_mut(), token) }
    }

    /// Updates a row. Waits for a transaction that is changing the row.
    ///
    /// # Safety
    /// Called inside `unguarded::guarded`; `self` comes from this table, the slot holds the new version, and the
    /// pointers' targets live through the call.
    pub unsafe fn update(
        &self,
        table: pg_sys::Relation,
        place: &mut pg_sys::ItemPointerData,
        slot: *mut pg_sys::TupleTableSlot,
        command: pg_sys::CommandId,
        failure: &mut pg_sys::TM_FailureData,
    ) -> (pg_sys::TM_Result::Type, UpdateIndexes) {
        let mut mode = pg_sys::LockTupleMode::LockTupleNoKeyExclusive;
        let mut which: UpdateIndexes = Default::default();
        // SAFETY: by the caller's contract; all pointers live through the call.
        let result = unsafe {
            (self.update)(
                table,
                place,
                slot,
                command,
                #[cfg(feature = "pg19")]
                0,
                null_mut(),
                null_mut(),
                true,
                failure,
                &mut mode,
                &mut which,
            )
        };
        (result, which)
    }

    /// Deletes a row. Waits for a transaction that is changing the row.
    ///
    /// # Safety
    /// Called inside `unguarded::guarded`; `self` comes from this table.
    pub unsafe fn delete(
        &self,
        table: pg_sys::Relation,
        place: &mut pg_sys::ItemPointerData,
        command: pg_sys::CommandId,
        failure: &mut pg_sys::TM_FailureData,
    ) -> pg_sys::TM_Result::Type {
        // SAFETY: by the caller's contract; both pointers live through the call.
        unsafe {
            (self.delete)(
                table,
                place,
                command,
                #[cfg(feature = "pg19")]
                0,
                null_mut(),
                null_mut(),
                true,
                failure,
                #[cfg(not(feature = "pg19"))]
                false,
            )
        }
    }
}
