//! Refusals that depend on the transaction.

use pgrx::pg_sys;

/// Raises 25006 in a read-only transaction and on a standby. `function` is the caller's name.
pub fn require_writable(function: &std::ffi::CStr) {
    // SAFETY: the name lives through the call.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(function.as_ptr());
        pg_sys::PreventCommandDuringRecovery(function.as_ptr());
    }
}
