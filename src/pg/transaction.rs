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

/// Raises 25006 in a read-only transaction and on a standby. `function` is the caller's name.
pub fn require_writable(function: &std::ffi::CStr) {
    // SAFETY: the name lives through the call.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(function.as_ptr());
        pg_sys::PreventCommandDuringRecovery(function.as_ptr());
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
