//! NOTIFY, as Postgres' own command does it: sent when the transaction commits, never when it does
//! not.

use std::ffi::{CStr, CString, c_char};

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

unsafe extern "C-unwind" {
    fn Async_Notify(channel: *const c_char, payload: *const c_char);
}

/// The longest payload that NOTIFY takes, in bytes: shorter than this.
pub const PAYLOAD_LIMIT: usize =
    pgrx::pg_sys::BLCKSZ as usize - pgrx::pg_sys::NAMEDATALEN as usize - 128;

/// Queues a notification. It may raise an error, so the call is guarded.
pub fn notify(channel: &CStr, payload: Vec<u8>) {
    let payload = CString::new(payload).unwrap_or_default();
    // SAFETY: both strings live through the call, which copies them; errors become panics at the
    // guard.
    unsafe {
        pg_guard_ffi_boundary(|| Async_Notify(channel.as_ptr(), payload.as_ptr()));
    }
}
