//! The wait events that pg_stat_activity shows while pgcache's processes sleep.

use pgrx::pg_sys;

/// Returns the wait event of a background worker that sleeps until its next task.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn idle_wait_event() -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// Returns the wait event of a background worker that sleeps until its next task. It has its own name, `PgcacheSweep`.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn idle_wait_event() -> u32 {
    thread_local! {
        // SAFETY: returns the number of a wait event with this name, and creates it if it is new.
        static EVENT: u32 = unsafe { pg_sys::WaitEventExtensionNew(c"PgcacheSweep".as_ptr()) };
    }
    EVENT.with(|event| *event)
}

/// Requests the resource for a wait event's name, in the hook that requests shared memory.
///
/// Before Postgres 17 an extension cannot name wait events, but it can name locks. So this function requests a lock
/// tranche with the name, whose only lock no process takes. Postgres shows the wait as a wait event of type LWLock.
///
/// # Safety
/// The caller is a shmem_request_hook.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub unsafe fn request_wait_event(name: &'static std::ffi::CStr) {
    // SAFETY: a shmem_request_hook may request tranches; Postgres copies the name.
    unsafe { pg_sys::RequestNamedLWLockTranche(name.as_ptr(), 1) };
}

/// Does nothing, because from Postgres 17 on a wait event needs no request.
///
/// # Safety
/// Always safe; unsafe only to have the same signature as for older versions.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub unsafe fn request_wait_event(_name: &'static std::ffi::CStr) {}

/// Returns the wait event of this name.
///
/// # Safety
/// The caller is a shmem_startup_hook, after a call of `request_wait_event`.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub unsafe fn wait_event(name: &'static std::ffi::CStr) -> u32 {
    // SAFETY: the tranche was requested, so it has one lock.
    let tranche = unsafe { (*pg_sys::GetNamedLWLockTranche(name.as_ptr())).lock.tranche };
    pg_sys::PG_WAIT_LWLOCK | u32::from(tranche)
}

/// Returns the wait event of this name.
///
/// # Safety
/// The caller is a shmem_startup_hook.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub unsafe fn wait_event(name: &'static std::ffi::CStr) -> u32 {
    // SAFETY: in a shmem_startup_hook shared memory exists, and Postgres copies the name into it.
    unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) }
}

/// The wait event of an idle process of the Redis protocol.
pub const RESP_WAIT_EVENT: &std::ffi::CStr = c"PgcacheResp";

/// Returns the wait event [`RESP_WAIT_EVENT`]. The server must have requested it at its start.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn resp_wait_event() -> u32 {
    thread_local! {
        // SAFETY: the server requested the tranche, and shared memory exists, because this is a process of the Redis
        // protocol.
        static EVENT: u32 = unsafe { wait_event(RESP_WAIT_EVENT) };
    }
    EVENT.with(|event| *event)
}

/// Returns the wait event [`RESP_WAIT_EVENT`].
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn resp_wait_event() -> u32 {
    thread_local! {
        // SAFETY: returns the number of a wait event with this name, and creates it if it is new.
        static EVENT: u32 = unsafe { pg_sys::WaitEventExtensionNew(RESP_WAIT_EVENT.as_ptr()) };
    }
    EVENT.with(|event| *event)
}
