//! Refusals that depend on the transaction, work that may fail without ending it, and the durability of
//! an abort.

use std::panic::AssertUnwindSafe;

use pgrx::pg_sys;
use pgrx::pg_sys::panic::{CaughtError, ErrorReport};
use pgrx::{PgLogLevel, PgSqlErrorCode, PgTryBuilder};

/// An error that was caught.
pub struct Failure {
    pub message: String,
    /// Somebody wanted one of our locks, or cancelled the statement: nothing is broken.
    pub cancelled: bool,
    error: Box<CaughtError>,
}

impl Failure {
    pub fn of(error: CaughtError) -> Failure {
        let report = match &error {
            CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => report,
            CaughtError::RustPanic { ereport, .. } => ereport,
        };
        Failure {
            message: report.message().to_owned(),
            cancelled: report.sql_error_code() == PgSqlErrorCode::ERRCODE_QUERY_CANCELED,
            error: Box::new(error),
        }
    }
}

impl Failure {
    /// Raises the error again, once what it interrupted is undone.
    pub fn raise(self) -> ! {
        self.error.rethrow()
    }

    /// Says in the log, and to the client where there is one, what failed and why.
    pub fn warn(&self, what: String) {
        ErrorReport::new(PgSqlErrorCode::ERRCODE_WARNING, what, "pgcache")
            .set_detail(self.message.clone())
            .report(PgLogLevel::WARNING);
    }
}

/// Runs under a savepoint of its own: an error undoes only what `work` did.
pub fn attempt<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    // SAFETY: a savepoint begins and ends here, whatever `work` does; memory context and resource
    // owner are put back, as every procedural language does it.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let owner = pg_sys::CurrentResourceOwner;
        let restore = move || {
            pg_sys::MemoryContextSwitchTo(context);
            pg_sys::CurrentResourceOwner = owner;
        };
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let done = PgTryBuilder::new(AssertUnwindSafe(|| Ok(work())))
            .catch_others(|error| Err(Failure::of(error)))
            .execute();
        match done {
            Ok(_) => pg_sys::ReleaseCurrentSubTransaction(),
            Err(_) => {
                pg_sys::MemoryContextSwitchTo(context);
                pg_sys::RollbackAndReleaseCurrentSubTransaction();
            }
        }
        restore();
        done
    }
}

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

/// Waits until the record of an abort that this process has just written is on disk. For a transaction
/// that made files of unlogged tables, before Postgres removes them.
///
/// Without this, a crash in the next moments (wal_writer_delay) keeps the server from starting: recovery
/// replays that the file was made and finds it there, because the end of its transaction is lost. It
/// starts when it is told to a second time, which nobody knows at that hour (Postgres bug 17731).
pub fn flush_abort() {
    // SAFETY: reads a variable of this process, the start of the last record that it wrote; a flush goes
    // up to the end of what has been inserted, hence of this record, and needs no transaction.
    unsafe {
        if pg_sys::ProcLastRecPtr != 0 && !pg_sys::RecoveryInProgress() {
            pg_sys::XLogFlush(pg_sys::ProcLastRecPtr + 1);
        }
    }
}
