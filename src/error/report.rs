//! An error as Postgres reports it: with its code, in the server's encoding.

use pgrx::pg_sys::panic::ErrorReport;

use super::Error;
use crate::pg::encoding::printable;

impl From<Error> for ErrorReport {
    fn from(error: Error) -> ErrorReport {
        let report = ErrorReport::new(error.code(), printable(error.message()), "pgcache")
            .set_hint(printable(error.hint()));
        match error.detail() {
            Some(detail) => report.set_detail(printable(detail)),
            None => report,
        }
    }
}
