//! Functions on a whole table: checks for a new file, reads its primary key and generated columns, enables its
//! triggers, and truncates it.

use pgrx::pg_sys;

/// Returns whether the transaction has given an open relation a new file, as TRUNCATE does.
///
/// # Safety
/// `relation` must be open.
pub unsafe fn has_new_file(relation: pg_sys::Relation) -> bool {
    // SAFETY: a plain field of an open relation.
    #[cfg(feature = "pg15")]
    let since = unsafe { (*relation).rd_newRelfilenodeSubid };
    // SAFETY: a plain field of an open relation.
    #[cfg(not(feature = "pg15"))]
    let since = unsafe { (*relation).rd_newRelfilelocatorSubid };
    since != 0 // InvalidSubTransactionId
}

/// Makes a trigger fire in all sessions, but leaves its copies on partitions unchanged.
///
/// # Safety
/// `relation` must be open and locked.
pub unsafe fn enable_always(relation: pg_sys::Relation, trigger: &std::ffi::CStr) {
    let (name, fires) = (trigger.as_ptr(), pg_sys::TRIGGER_FIRES_ALWAYS as i8 as _);
    let lock = pg_sys::ShareRowExclusiveLock as i32;
    // SAFETY: the relation is open and locked, by the caller's contract; the name is only read.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::EnableDisableTriggerNew(relation, name, fires, true, false, lock)
    }
    // SAFETY: as for Postgres 15; InvalidOid allows any parent.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::EnableDisableTrigger(relation, name, pg_sys::InvalidOid, fires, true, false, lock)
    }
}

/// Truncates open tables. Raises an error if another table refers to one of them by a foreign key. Restarts no
/// sequences.
///
/// # Safety
/// The lists hold the relations, their OIDs, and the OIDs of the logically logged relations among them. Each relation
/// has the lock that TRUNCATE takes, and is not in use.
pub unsafe fn truncate(
    relations: *mut pg_sys::List,
    oids: *mut pg_sys::List,
    logged: *mut pg_sys::List,
) {
    let restrict = pg_sys::DropBehavior::DROP_RESTRICT;
    // SAFETY: by the caller's contract.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::ExecuteTruncateGuts(relations, oids, logged, restrict, false)
    }
    // SAFETY: by the caller's contract. The caller has set the user that the checks of privileges use.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::ExecuteTruncateGuts(relations, oids, logged, restrict, false, false)
    }
}

/// Returns the index of the primary key; InvalidOid if the table has no primary key or a deferrable one.
///
/// # Safety
/// `relation` must be open.
pub unsafe fn primary_key_index(relation: pg_sys::Relation) -> pg_sys::Oid {
    // SAFETY: the caller's relation is open; Postgres makes the list of its indexes in its own memory.
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    unsafe {
        pg_sys::RelationGetPrimaryKeyIndex(relation)
    }
    // SAFETY: the caller's relation is open; Postgres makes the list of its indexes in its own memory.
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    unsafe {
        pg_sys::RelationGetPrimaryKeyIndex(relation, false)
    }
}

/// Returns whether a column is a virtual generated column, which rows do not store.
pub fn is_virtual(column: &pg_sys::FormData_pg_attribute) -> bool {
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let _ = column;
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    return false;
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    return column.attgenerated == pg_sys::ATTRIBUTE_GENERATED_VIRTUAL as i8;
}

/// Returns whether any column is generated.
///
/// # Safety
/// `constraints` belong to an open table.
pub unsafe fn has_generated(constraints: *const pg_sys::TupleConstr) -> bool {
    // SAFETY: by the caller's contract.
    unsafe {
        #[cfg(any(feature = "pg18", feature = "pg19"))]
        if (*constraints).has_generated_virtual {
            return true;
        }
        (*constraints).has_generated_stored
    }
}
