//! Checks that calls fail with the expected error.

use postgres::Error;
use postgres::error::DbError;

/// Checks that the server raised an error with this SQLSTATE, and returns the error.
pub fn refused<T>(result: Result<T, Error>, sqlstate: &str) -> DbError {
    let Err(error) = result else {
        panic!("should have been refused with {sqlstate}, but was done");
    };
    let Some(error) = error.as_db_error() else {
        panic!("should have been refused with {sqlstate}, but the session broke: {error:?}");
    };
    assert_eq!(error.code().code(), sqlstate, "{error:?}");
    error.clone()
}

/// Returns the SQLSTATE of an error. Panics if the session broke, because then the error has no SQLSTATE.
pub fn sqlstate(error: &Error) -> &str {
    match error.code() {
        Some(code) => code.code(),
        None => panic!("the session broke: {error:?}"),
    }
}
