//! The wait events that pg_stat_activity shows for our processes.

use pgrx::pg_sys;

/// Returns the wait event of one of our processes that sleeps until its time.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn idle_wait_event() -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// Returns the wait event of one of our processes that sleeps until its time: a name of our own.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn idle_wait_event() -> u32 {
    thread_local! {
        // SAFETY: returns the number of a name, and creates a new one.
        static EVENT: u32 = unsafe { pg_sys::WaitEventExtensionNew(c"PgcacheSweep".as_ptr()) };
    }
    EVENT.with(|event| *event)
}

/// Requests the resources of a wait event's name; in the hook that requests shared memory.
///
/// Before 17 an extension cannot name its wait events, but it can name locks: the name of a tranche with one lock
/// that no process takes is shown, as a wait event of type LWLock.
///
/// # Safety
/// Called in shmem_request_hook.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub unsafe fn request_wait_event(name: &'static std::ffi::CStr) {
    // SAFETY: in shmem_request_hook tranches may be requested; the name is copied.
    unsafe { pg_sys::RequestNamedLWLockTranche(name.as_ptr(), 1) };
}

/// Does nothing, because no resources are needed from 17 on.
///
/// # Safety
/// None needed; the same signature as for the versions before.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub unsafe fn request_wait_event(_name: &'static std::ffi::CStr) {}

/// Returns the wait event of that name.
///
/// # Safety
/// Called in shmem_startup_hook, after `request_wait_event`.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub unsafe fn wait_event(name: &'static std::ffi::CStr) -> u32 {
    // SAFETY: the tranche was requested, so it has its one lock.
    let tranche = unsafe { (*pg_sys::GetNamedLWLockTranche(name.as_ptr())).lock.tranche };
    pg_sys::PG_WAIT_LWLOCK | u32::from(tranche)
}

/// Returns the wait event of that name.
///
/// # Safety
/// Called in shmem_startup_hook.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub unsafe fn wait_event(name: &'static std::ffi::CStr) -> u32 {
    // SAFETY: in shmem_startup_hook shared memory, into which the name is copied, exists.
    unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) }
}

/// The wait event of an idle process of the Redis protocol.
pub const RESP_WAIT_EVENT: &std::ffi::CStr = c"PgcacheResp";

/// Returns the wait event of that name; only where it was requested at the start.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn resp_wait_event() -> u32 {
    thread_local! {
        // SAFETY: the tranche was requested, and shared memory exists: this is a process of the Redis protocol.
        static EVENT: u32 = unsafe { wait_event(RESP_WAIT_EVENT) };
    }
    EVENT.with(|event| *event)
}

/// Returns the wait event of that name.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn resp_wait_event() -> u32 {
    thread_local! {
        // SAFETY: returns the number of a name, and creates a new one.
        static EVENT: u32 = unsafe { pg_sys::WaitEventExtensionNew(RESP_WAIT_EVENT.as_ptr()) };
    }
    EVENT.with(|event| *event)
}
