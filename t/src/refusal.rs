//! Checks for errors that must occur.

use postgres::Error;
use postgres::error::DbError;

/// Returns the error that the server must have raised, with this SQLSTATE.
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

/// Returns the SQLSTATE of an error; a broken session has none and is a failure.
pub fn sqlstate(error: &Error) -> &str {
    match error.code() {
        Some(code) => code.code(),
        None => panic!("the session broke: {error:?}"),
    }
}
