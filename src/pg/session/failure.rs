//! An error that was caught: to be reported, or raised again once what it interrupted has been
//! undone.

use pgrx::pg_sys::panic::{CaughtError, ErrorReport};
use pgrx::{PgLogLevel, PgSqlErrorCode};

/// An error that was caught.
pub struct Failure {
    pub message: String,
    /// The statement was cancelled, by a user or by a session that wanted one of our locks: nothing
    /// is broken.
    pub cancelled: bool,
    /// A lock was not to be had in time: nothing is broken either.
    pub locked: bool,
    error: Box<CaughtError>,
}

impl Failure {
    /// What pgrx has caught, of whichever kind.
    pub fn of(error: CaughtError) -> Failure {
        let report = match &error {
            CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => report,
            CaughtError::RustPanic { ereport, .. } => ereport,
        };
        Failure {
            message: report.message().to_owned(),
            cancelled: report.sql_error_code() == PgSqlErrorCode::ERRCODE_QUERY_CANCELED,
            locked: report.sql_error_code() == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
            error: Box::new(error),
        }
    }

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
