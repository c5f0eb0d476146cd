//! Every difference between the Postgres versions, under one name each.

use pgrx::pg_sys;

/// Whether `role` owns the relation or has the owner's rights.
///
/// # Safety
/// A syscache look-up: a transaction must be open.
#[cfg(feature = "pg15")]
pub unsafe fn owns_relation(relation: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: the caller's transaction is open.
    unsafe { pg_sys::pg_class_ownercheck(relation, role) }
}

/// Whether `role` owns the relation or has the owner's rights.
///
/// # Safety
/// A syscache look-up: a transaction must be open.
#[cfg(not(feature = "pg15"))]
pub unsafe fn owns_relation(relation: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: the caller's transaction is open.
    unsafe { pg_sys::object_ownercheck(pg_sys::RelationRelationId, relation, role) }
}
