//! An error that was caught: to be reported, or raised again once what it interrupted has been
//! undone.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pgrx::pg_sys::panic::{CaughtError, ErrorReport, ErrorReportWithLevel};
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

use crate::error::Error;

/// An error that was caught.
pub struct Failure {
    pub message: String,
    pub code: PgSqlErrorCode,
    /// The statement was cancelled, by a user or by a session that wanted one of our locks: nothing
    /// is broken.
    pub cancelled: bool,
    /// A lock was not to be had in time: nothing is broken either.
    pub locked: bool,
    /// The hint, where the error is one of ours.
    hint: Option<String>,
    error: Box<CaughtError>,
}

impl Failure {
    /// What pgrx has caught, of whichever kind.
    pub fn of(error: CaughtError) -> Failure {
        let report = match &error {
            CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => report,
            CaughtError::RustPanic { ereport, .. } => ereport,
        };
        let hint = match &error {
            CaughtError::ErrorReport(report) => report.hint().map(str::to_owned),
            CaughtError::PostgresError(_) | CaughtError::RustPanic { .. } => None,
        };
        Failure {
            hint,
            code: report.sql_error_code(),
            message: report.message().to_owned(),
            cancelled: report.sql_error_code() == PgSqlErrorCode::ERRCODE_QUERY_CANCELED,
            locked: report.sql_error_code() == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
            error: Box::new(error),
        }
    }

    /// Postgres has ended the wait for a lock because its holder waited for this session.
    pub fn is_deadlock(&self) -> bool {
        self.code == PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED
    }

    /// Raises the error again, once what it interrupted is undone.
    pub fn raise(self) -> ! {
        raise_copy(*self.error)
    }

    /// Says in the log, and to the client where there is one, what failed and why, and what to do. The
    /// hint of an error of ours comes first; another's may show a value.
    pub fn warn(&self, what: String, hint: &str) {
        let code = PgSqlErrorCode::ERRCODE_WARNING;
        match &self.hint {
            Some(own) => warn(code, what, self.message.clone(), &format!("{own} {hint}")),
            None => warn(code, what, self.message.clone(), hint),
        }
    }
}

/// Raises the copy of an error whose original Postgres no longer keeps. pgrx passes an error of Postgres on by having
/// Postgres throw the original again, which would be missing; it reports the copy where the copy is one of Rust.
pub fn raise_copy(error: CaughtError) -> ! {
    match error {
        CaughtError::PostgresError(report) => {
            resume_unwind(Box::new(CaughtError::ErrorReport(report)))
        }
        other => other.rethrow(),
    }
}

/// Removes an error that was caught from Postgres' stack of errors, which has room for five.
pub fn forget_original() {
    // SAFETY: the error was caught and copied, and no code raises it again.
    unsafe { pg_sys::FlushErrorState() };
}

/// A WARNING of something that is put off, and is no error of anybody's statement.
pub fn warn(code: PgSqlErrorCode, what: String, detail: String, hint: &str) {
    ErrorReport::new(code, what, "pgcache")
        .set_detail(detail)
        .set_hint(hint)
        .report(PgLogLevel::WARNING);
}

/// A line of the log that is no warning.
pub fn log(what: String) {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        what,
        "pgcache",
    )
    .report(PgLogLevel::LOG);
}

/// Runs `work`. An error of Postgres that leaves it goes on as what `other` makes of it, if anything:
/// such an error may show a value, and messages end up in logs. Costs nothing where none comes.
pub fn replacing<R>(
    work: impl FnOnce() -> R,
    other: impl FnOnce(&ErrorReportWithLevel) -> Option<ErrorReport>,
) -> R {
    let payload = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => return result,
        Err(payload) => payload,
    };
    if let Some(CaughtError::PostgresError(error)) = payload.downcast_ref()
        && let Some(report) = other(error)
    {
        forget_original();
        report.report(PgLogLevel::ERROR);
    }
    resume_unwind(payload)
}

/// Runs `work`; None where it ends with an error of Postgres of one of these kinds. Without a
/// subtransaction: only for what holds nothing that an abort would have to give back, as functions
/// that read a value's text.
pub fn unless<R>(expected: &[PgSqlErrorCode], work: impl FnOnce() -> R) -> Option<R> {
    let payload = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => return Some(result),
        Err(payload) => payload,
    };
    match payload.downcast_ref() {
        Some(CaughtError::PostgresError(error)) if expected.contains(&error.sql_error_code()) => {
            forget_original();
            None
        }
        _ => resume_unwind(payload),
    }
}

/// The SQLSTATEs of class 23: a constraint or a unique index was violated.
const INTEGRITY: [PgSqlErrorCode; 7] = [
    PgSqlErrorCode::ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION,
    PgSqlErrorCode::ERRCODE_RESTRICT_VIOLATION,
    PgSqlErrorCode::ERRCODE_NOT_NULL_VIOLATION,
    PgSqlErrorCode::ERRCODE_FOREIGN_KEY_VIOLATION,
    PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION,
    PgSqlErrorCode::ERRCODE_CHECK_VIOLATION,
    PgSqlErrorCode::ERRCODE_EXCLUSION_VIOLATION,
];

/// What is said in place of an error of a statement of ours that shows a value: bytes that are no
/// text, or in its DETAIL the row that violates a constraint, the message of which names the
/// constraint and the table. None for every other error.
pub fn without_values(error: &ErrorReportWithLevel) -> Option<ErrorReport> {
    if error.sql_error_code() == PgSqlErrorCode::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE {
        return Some(Error::NotText.into());
    }
    if !INTEGRITY.contains(&error.sql_error_code()) || error.detail().is_none() {
        return None;
    }
    let message = error.message().to_owned();
    let report = ErrorReport::new(error.sql_error_code(), message, "pgcache")
        .set_detail("The row is not shown, because messages hold neither keys nor values.");
    Some(match error.hint() {
        Some(hint) => report.set_hint(hint),
        None => report,
    })
}
