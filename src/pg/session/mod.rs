//! The state of the session and its transaction: locks, snapshots, settings, the clock and errors.
//!
//! This file itself holds the checks that every hot read makes. They must be cheap, so most of them read variables of
//! the process, or call, without pgrx's guard, a C function that raises no error.

pub mod advisory;
pub mod async_notify;
pub mod clock;
pub mod failure;
pub mod fault;
pub mod hint;
pub mod lock;
pub mod pause;
pub mod random;
pub mod shard_lock;
pub mod subtransaction;
pub mod temporary_settings;
pub mod transaction;
pub mod transaction_local;
pub mod wait;

use pgrx::pg_sys;

unsafe extern "C-unwind" {
    fn GetTopTransactionIdIfAny() -> pg_sys::TransactionId;
    fn RecoveryInProgress() -> bool;
    fn GetUserId() -> pg_sys::Oid;
    fn GetSessionUserId() -> pg_sys::Oid;
    fn IsInParallelMode() -> bool;
}

/// Returns the role whose privileges currently apply.
#[inline]
pub fn user() -> pg_sys::Oid {
    // SAFETY: reads a variable of this process.
    unsafe { GetUserId() }
}

/// Returns the session's login role, even after SET ROLE.
pub fn own_role() -> u32 {
    // SAFETY: reads a variable of this process.
    unsafe { GetSessionUserId() }.to_u32()
}

/// Returns whether the current role is a superuser.
pub fn is_superuser() -> bool {
    // SAFETY: a lookup inside a transaction.
    unsafe { pg_sys::superuser() }
}

/// Returns whether each statement of the transaction takes a new snapshot and the transaction has written nothing. Only
/// such a session may read or make copies of committed rows.
///
/// A transaction without an xid has no uncommitted row in any table. So a copy hides none of its own writes, not even a
/// write that a trigger has yet to record.
#[inline]
pub fn reads_committed_only() -> bool {
    // SAFETY: reads variables of this process.
    unsafe {
        pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32
            && GetTopTransactionIdIfAny() == pg_sys::InvalidTransactionId
    }
}

/// Returns whether the transaction sees at most one row under a key. It may see two, one of which it wrote, only if its
/// statements share one snapshot and it has written.
#[inline]
pub fn sees_one_version() -> bool {
    // SAFETY: reads variables of this process.
    unsafe {
        pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32
            || GetTopTransactionIdIfAny() == pg_sys::InvalidTransactionId
    }
}

/// Returns whether the running statement has a parallel plan, which cannot write.
#[inline]
pub fn in_parallel_mode() -> bool {
    // SAFETY: reads a variable of this process.
    unsafe { IsInParallelMode() }
}

/// Returns whether this process works on a part of another session's parallel plan. Such a worker sees the rows that
/// the other session has changed, but lacks the other session's list of changed keys.
#[inline]
pub fn is_parallel_worker() -> bool {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::ParallelWorkerNumber >= 0 }
}

/// Runs `work` without interruption: until it ends, `check_for_interrupts` does nothing.
#[inline]
pub fn uninterrupted<R>(work: impl FnOnce() -> R) -> R {
    let _held = Uninterrupted::enter();
    work()
}

struct Uninterrupted;

impl Uninterrupted {
    #[inline]
    fn enter() -> Uninterrupted {
        // SAFETY: a plain C variable of this process.
        unsafe { pg_sys::InterruptHoldoffCount += 1 };
        Uninterrupted
    }
}

impl Drop for Uninterrupted {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a plain C variable of this process. A Postgres error has set it to 0 before it unwinds; a pgcache
        // error, which a caller may catch, leaves it unchanged.
        unsafe { pg_sys::InterruptHoldoffCount = pg_sys::InterruptHoldoffCount.saturating_sub(1) };
    }
}

/// Returns whether this server is a standby that replays WAL.
#[inline]
pub fn in_recovery() -> bool {
    // SAFETY: reads a flag of shared memory, which exists in every process that runs pgcache's code.
    unsafe { RecoveryInProgress() }
}

/// Raises an error if the statement was cancelled or has timed out. The caller must hold no lock of the hot tier.
#[inline]
pub fn check_for_interrupts() {
    pgrx::check_for_interrupts!();
}

/// Returns the database of this session.
#[inline]
pub fn database() -> pg_sys::Oid {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::MyDatabaseId }
}

/// Makes Postgres reject settings with this prefix that are not defined.
pub fn reserve_settings_prefix(prefix: &'static std::ffi::CStr) {
    // SAFETY: the prefix is static, because Postgres keeps a pointer to it.
    unsafe { pg_sys::MarkGUCPrefixReserved(prefix.as_ptr()) };
}
