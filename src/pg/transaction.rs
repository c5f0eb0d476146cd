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

/// Rows may be written as long as this lives, whatever `SET TRANSACTION READ ONLY` said after the
/// transaction's own writes: what follows from these is still to be written.
pub struct Writable(bool);

impl Writable {
    pub fn enter() -> Writable {
        // SAFETY: a plain C variable of this process; an abort sets it back as well.
        unsafe {
            let former = pg_sys::XactReadOnly;
            pg_sys::XactReadOnly = false;
            Writable(former)
        }
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        // SAFETY: as in enter.
        unsafe { pg_sys::XactReadOnly = self.0 };
    }
}

/// A snapshot is active as long as this lives. Utility statements ask for one, and none is active any
/// more when the commit has begun.
pub struct Snapshot(());

impl Snapshot {
    pub fn enter() -> Snapshot {
        // SAFETY: inside a transaction; popped by drop, after an error by the abort.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot()) };
        Snapshot(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: pushed in enter; what came after it has been popped.
            unsafe { pg_sys::PopActiveSnapshot() };
        }
    }
}
