//! Refusals that depend on the transaction.

use pgrx::pg_sys;

/// Whether tables can be written: not in a read-only transaction and not on a standby.
pub fn is_writable() -> bool {
    // SAFETY: a plain C variable of this process.
    !unsafe { pg_sys::XactReadOnly } && !super::session::in_recovery()
}

/// Whether the transaction has written something, so that others may wait for its end.
pub fn has_xid() -> bool {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// Raises 25006 in a read-only transaction and on a standby. `function` is the caller's name.
pub fn require_writable(function: &std::ffi::CStr) {
    // SAFETY: the name lives through the call.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(function.as_ptr());
        pg_sys::PreventCommandDuringRecovery(function.as_ptr());
    }
}
