//! Handles caught errors: reports them as warnings, or raises them again after the interrupted work was undone.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pgrx::pg_sys::panic::{CaughtError, ErrorReport, ErrorReportWithLevel};
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

use crate::error::Error;

/// A caught error.
pub struct Failure {
    pub message: String,
    pub code: PgSqlErrorCode,
    /// Whether the statement was cancelled, by a user or because another session needed one of pgcache's locks. A
    /// cancelled statement is not a defect.
    pub cancelled: bool,
    /// Whether a lock was not available in time. A lock timeout is not a defect either.
    pub locked: bool,
    /// The hint, if the error is pgcache's own.
    hint: Option<String>,
    error: Box<CaughtError>,
}

impl Failure {
    /// Wraps an error of any kind that pgrx has caught.
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

    /// Returns whether Postgres aborted the wait for a lock because its holder waited for this session.
    pub fn is_deadlock(&self) -> bool {
        self.code == PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED
    }

    /// Raises the error again, after the interrupted work has been undone.
    pub fn raise(self) -> ! {
        raise_copy(*self.error)
    }

    /// Reports the failure as a WARNING with its cause and its remedy, to the log and to the client if one is
    /// connected. The hint of a pgcache error comes before `hint`; the hint of any other error may show a value, so the
    /// warning omits it.
    pub fn warn(&self, what: String, hint: &str) {
        let code = PgSqlErrorCode::ERRCODE_WARNING;
        match &self.hint {
            Some(own) => warn(code, what, self.message.clone(), &format!("{own} {hint}")),
            None => warn(code, what, self.message.clone(), hint),
        }
    }
}

/// Raises a copy of an error after Postgres has discarded the original. For a caught Postgres error, pgrx would make
/// Postgres throw the original, which no longer exists; so the copy is raised as a Rust error, which pgrx reports
/// itself.
pub fn raise_copy(error: CaughtError) -> ! {
    match error {
        CaughtError::PostgresError(report) => {
            resume_unwind(Box::new(CaughtError::ErrorReport(report)))
        }
        other => other.rethrow(),
    }
}

/// Removes a caught error from Postgres' error stack, which has room for five.
pub fn forget_original() {
    // SAFETY: the error was caught and copied, and no code raises it again.
    unsafe { pg_sys::FlushErrorState() };
}

/// Reports a WARNING about deferred work, whose failure is not an error of the client's statement.
pub fn warn(code: PgSqlErrorCode, what: String, detail: String, hint: &str) {
    ErrorReport::new(code, what, "pgcache")
        .set_detail(detail)
        .set_hint(hint)
        .report(PgLogLevel::WARNING);
}

/// Writes a line to the log, below the level of a warning.
pub fn log(what: String) {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        what,
        "pgcache",
    )
    .report(PgLogLevel::LOG);
}

/// Runs `work`, and replaces a Postgres error with the error that `other` returns, if any. Callers need this because a
/// Postgres error may show a value, and messages end up in logs. Costs nothing if no error occurs.
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

/// Runs `work`. Returns None if it ends with a Postgres error of one of these kinds. Uses no subtransaction, so `work`
/// must hold nothing that only an abort releases; it is meant for functions that parse a value.
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

/// The SQLSTATEs of class 23: violations of constraints and unique indexes.
const INTEGRITY: [PgSqlErrorCode; 7] = [
    PgSqlErrorCode::ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION,
    PgSqlErrorCode::ERRCODE_RESTRICT_VIOLATION,
    PgSqlErrorCode::ERRCODE_NOT_NULL_VIOLATION,
    PgSqlErrorCode::ERRCODE_FOREIGN_KEY_VIOLATION,
    PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION,
    PgSqlErrorCode::ERRCODE_CHECK_VIOLATION,
    PgSqlErrorCode::ERRCODE_EXCLUSION_VIOLATION,
];

/// Returns a replacement for an error of one of pgcache's statements if the error shows a value. An error shows a value
/// if its message shows bytes that are not valid text, or if its DETAIL shows the row that violates a constraint. In
/// the second case the replacement names the constraint and the table. Returns None for every other error.
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
