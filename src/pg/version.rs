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

/// Sets a signal's handler.
///
/// # Safety
/// The handler must do nothing but what a signal handler may.
#[cfg(not(feature = "pg18"))]
pub unsafe fn on_signal(signal: u32, handler: unsafe extern "C-unwind" fn(i32)) {
    // SAFETY: the caller's handler.
    unsafe { pg_sys::pqsignal(signal as i32, Some(handler)) };
}

/// Sets a signal's handler.
///
/// # Safety
/// The handler must do nothing but what a signal handler may.
#[cfg(feature = "pg18")]
pub unsafe fn on_signal(signal: u32, handler: unsafe extern "C-unwind" fn(i32)) {
    // SAFETY: the caller's handler.
    unsafe { pg_sys::pqsignal_be(signal as i32, Some(handler)) };
}

/// What pg_stat_activity shows while one of our processes waits for its time.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn wait_event() -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// What pg_stat_activity shows while one of our processes waits for its time: a name of our own.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn wait_event() -> u32 {
    thread_local! {
        // SAFETY: gives the number of a name, and makes it where it is new.
        static EVENT: u32 = unsafe { pg_sys::WaitEventExtensionNew(c"PgcacheSweep".as_ptr()) };
    }
    EVENT.with(|event| *event)
}
