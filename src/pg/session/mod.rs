//! Cheap questions about the session's present transaction, asked on every hot read.
//!
//! Each is one C function that raises no error, called without the guard that pgrx puts around
//! calls that may.

pub mod advisory;
pub mod clock;
pub mod failure;
pub mod lock;
pub mod pause;
pub mod random;
pub mod subtransaction;
pub mod transaction;
pub mod transaction_local;
pub mod wait;

use pgrx::pg_sys;

unsafe extern "C-unwind" {
    fn GetTopTransactionIdIfAny() -> pg_sys::TransactionId;
    fn RecoveryInProgress() -> bool;
    fn GetUserId() -> pg_sys::Oid;
    fn IsInParallelMode() -> bool;
}

/// The role whose privileges count now.
#[inline]
pub fn user() -> pg_sys::Oid {
    // SAFETY: reads a variable of this process.
    unsafe { GetUserId() }
}

/// Whether the transaction reads each statement with a new snapshot and has written nothing: the
/// only transactions in which copies of committed rows may be served or made.
///
/// Without an xid nothing of the transaction can be uncommitted in any table, so neither its own
/// writes nor rows that a trigger has not noted yet can be missed.
#[inline]
pub fn reads_committed_only() -> bool {
    // SAFETY: reads variables of this process.
    unsafe {
        pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32
            && GetTopTransactionIdIfAny() == pg_sys::InvalidTransactionId
    }
}

/// Whether no key has two rows that the transaction sees, one of them its own: so unless it has one snapshot for
/// all its statements, and has written.
#[inline]
pub fn sees_one_version() -> bool {
    // SAFETY: reads variables of this process.
    unsafe {
        pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32
            || GetTopTransactionIdIfAny() == pg_sys::InvalidTransactionId
    }
}

/// Whether the statement that runs now has a parallel plan: nothing can be written.
#[inline]
pub fn in_parallel_mode() -> bool {
    // SAFETY: reads a variable of this process.
    unsafe { IsInParallelMode() }
}

/// Runs `work` so that nothing cancels it half-way: `check_for_interrupts` passes until it has ended.
pub fn uninterrupted<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: a variable of this process; an error inside of `work` sets it back to 0, as any error does.
    unsafe { pg_sys::InterruptHoldoffCount += 1 };
    let result = work();
    // SAFETY: as above.
    unsafe { pg_sys::InterruptHoldoffCount -= 1 };
    result
}

/// Whether this server is a standby that replays WAL.
#[inline]
pub fn in_recovery() -> bool {
    // SAFETY: reads shared memory.
    unsafe { RecoveryInProgress() }
}

/// Ends the statement if it was cancelled or has timed out. Not while a lock of the tier is held.
#[inline]
pub fn check_for_interrupts() {
    pgrx::check_for_interrupts!();
}

/// The database of this session.
#[inline]
pub fn database() -> pg_sys::Oid {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::MyDatabaseId }
}

/// Refuses settings of this prefix that nobody has defined.
pub fn reserve_settings_prefix(prefix: &'static std::ffi::CStr) {
    // SAFETY: the prefix is static, as Postgres keeps a pointer to it.
    unsafe { pg_sys::MarkGUCPrefixReserved(prefix.as_ptr()) };
}
