//! A table as a whole: what its definition says, and what is done to it.

use pgrx::pg_sys;

/// Whether the transaction has given an open relation another file, as TRUNCATE does.
///
/// # Safety
/// `relation` must be open.
pub unsafe fn has_new_file(relation: pg_sys::Relation) -> bool {
    // SAFETY: a plain field of an open relation.
    #[cfg(feature = "pg15")]
    let since = unsafe { (*relation).rd_newRelfilenodeSubid };
    // SAFETY: as above.
    #[cfg(not(feature = "pg15"))]
    let since = unsafe { (*relation).rd_newRelfilelocatorSubid };
    since != 0 // InvalidSubTransactionId
}

/// Has a trigger fire in all sessions, those of partitions not included.
///
/// # Safety
/// `relation` must be open and locked.
pub unsafe fn enable_always(relation: pg_sys::Relation, trigger: &std::ffi::CStr) {
    let (name, fires) = (trigger.as_ptr(), pg_sys::TRIGGER_FIRES_ALWAYS as i8 as _);
    let lock = pg_sys::ShareRowExclusiveLock as i32;
    // SAFETY: the relation is open and locked, by the caller's word; the name is only read.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::EnableDisableTriggerNew(relation, name, fires, true, false, lock)
    }
    // SAFETY: as above; of any parent, which InvalidOid says.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::EnableDisableTrigger(relation, name, pg_sys::InvalidOid, fires, true, false, lock)
    }
}

/// Empties tables that are open; no other table that refers to them, and no sequence.
///
/// # Safety
/// The lists are of relations, of their oids, and of those that are logically logged. Each is
/// locked as TRUNCATE locks it, and not in use.
pub unsafe fn truncate(
    relations: *mut pg_sys::List,
    oids: *mut pg_sys::List,
    logged: *mut pg_sys::List,
) {
    let restrict = pg_sys::DropBehavior::DROP_RESTRICT;
    // SAFETY: as the caller says.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::ExecuteTruncateGuts(relations, oids, logged, restrict, false)
    }
    // SAFETY: as the caller says. Who is to be the user has been seen to.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::ExecuteTruncateGuts(relations, oids, logged, restrict, false, false)
    }
}

/// The index of the primary key, unless that is deferrable.
///
/// # Safety
/// `relation` must be open.
pub unsafe fn primary_key_index(relation: pg_sys::Relation) -> pg_sys::Oid {
    // SAFETY: the caller's relation is open; the list of its indexes is made in Postgres' own
    // memory.
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    unsafe {
        pg_sys::RelationGetPrimaryKeyIndex(relation)
    }
    // SAFETY: the caller's relation is open; the list of its indexes is made in Postgres' own
    // memory.
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    unsafe {
        pg_sys::RelationGetPrimaryKeyIndex(relation, false)
    }
}

/// Whether a column is computed when it is read, so that no row holds it.
pub fn is_virtual(column: &pg_sys::FormData_pg_attribute) -> bool {
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let _ = column;
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    return false;
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    return column.attgenerated == pg_sys::ATTRIBUTE_GENERATED_VIRTUAL as i8;
}

/// Whether a column is generated.
///
/// # Safety
/// Constraints of a table that is open.
pub unsafe fn has_generated(constraints: *const pg_sys::TupleConstr) -> bool {
    // SAFETY: as the caller says.
    unsafe {
        #[cfg(any(feature = "pg18", feature = "pg19"))]
        if (*constraints).has_generated_virtual {
            return true;
        }
        (*constraints).has_generated_stored
    }
}
