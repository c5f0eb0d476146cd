//! The wait events that pg_stat_activity shows while our processes sleep.

use pgrx::pg_sys;

/// Returns the wait event of a process of ours that sleeps until its next task.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn idle_wait_event() -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// Returns the wait event of a process of ours that sleeps until its next task, under a name of our own.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn idle_wait_event() -> u32 {
    thread_local! {
        // SAFETY: returns the number of a name, and creates a new one.
        static EVENT: u32 = unsafe { pg_sys::WaitEventExtensionNew(c"PgcacheSweep".as_ptr()) };
    }
    EVENT.with(|event| *event)
}

/// Requests what a wait event's name needs, in the hook that requests shared memory.
///
/// Before 17 an extension cannot name its wait events, but it can name locks. So a tranche with this name is
/// requested, whose one lock no process takes; the wait is shown as a wait event of type LWLock.
///
/// # Safety
/// Called in shmem_request_hook.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub unsafe fn request_wait_event(name: &'static std::ffi::CStr) {
    // SAFETY: in shmem_request_hook tranches may be requested; the name is copied.
    unsafe { pg_sys::RequestNamedLWLockTranche(name.as_ptr(), 1) };
}

/// Does nothing: from 17 on no request is needed.
///
/// # Safety
/// None needed; the signature is that of the versions before.
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

/// Returns the wait event of that name. Only for a server on which it was requested at the start.
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
