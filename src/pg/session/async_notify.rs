//! Sends notifications as the NOTIFY command does: only when the transaction commits.

use std::ffi::{CStr, CString, c_char};

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

unsafe extern "C-unwind" {
    fn Async_Notify(channel: *const c_char, payload: *const c_char);
}

/// The limit of a payload in bytes; a payload must be shorter than this.
pub const PAYLOAD_LIMIT: usize =
    pgrx::pg_sys::BLCKSZ as usize - pgrx::pg_sys::NAMEDATALEN as usize - 128;

/// Queues a notification. The call is guarded, because it may raise an error.
pub fn notify(channel: &CStr, payload: Vec<u8>) {
    let payload = CString::new(payload).unwrap_or_default();
    // SAFETY: both strings live through the call, which copies them; the guard turns errors into panics.
    unsafe {
        pg_guard_ffi_boundary(|| Async_Notify(channel.as_ptr(), payload.as_ptr()));
    }
}
