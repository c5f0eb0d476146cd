//! Checks whether a role owns a relation, may connect to a database, or may use a schema.

use pgrx::pg_sys;

/// Returns whether `role` owns the relation or has the privileges of its owner.
///
/// # Safety
/// A syscache lookup: a transaction must be open.
pub unsafe fn owns_relation(relation: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: the caller's transaction is open.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::pg_class_ownercheck(relation, role)
    }
    // SAFETY: the caller's transaction is open.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::object_ownercheck(pg_sys::RelationRelationId, relation, role)
    }
}

/// Returns whether a role may connect to a database.
///
/// # Safety
/// A syscache lookup: a transaction must be open.
pub unsafe fn may_connect(role: pg_sys::Oid, database: pg_sys::Oid) -> bool {
    let mode = pg_sys::ACL_CONNECT as pg_sys::AclMode;
    // SAFETY: the caller's transaction is open; role and database may be any numbers.
    #[cfg(feature = "pg15")]
    let result = unsafe { pg_sys::pg_database_aclcheck(database, role, mode) };
    // SAFETY: as for Postgres 15.
    #[cfg(not(feature = "pg15"))]
    let result =
        unsafe { pg_sys::object_aclcheck(pg_sys::DatabaseRelationId, database, role, mode) };
    result == pg_sys::AclResult::ACLCHECK_OK
}

/// Returns whether a role may use the objects of a schema.
///
/// # Safety
/// A syscache lookup: a transaction must be open. The schema must exist.
pub unsafe fn may_use_schema(role: pg_sys::Oid, schema: pg_sys::Oid) -> bool {
    let mode = pg_sys::ACL_USAGE as pg_sys::AclMode;
    // SAFETY: the caller's transaction is open, and the schema exists.
    #[cfg(feature = "pg15")]
    let result = unsafe { pg_sys::pg_namespace_aclcheck(schema, role, mode) };
    // SAFETY: as for Postgres 15.
    #[cfg(not(feature = "pg15"))]
    let result =
        unsafe { pg_sys::object_aclcheck(pg_sys::NamespaceRelationId, schema, role, mode) };
    result == pg_sys::AclResult::ACLCHECK_OK
}
