//! Adds a hint to an error that Postgres raises, without replacing the error, so that its message stays in the server's
//! language.
//!
//! pgrx copies an error together with its hint when the error leaves a call of Postgres. So a callback in Postgres'
//! list of error contexts sets the hint while the call runs, in the server's encoding.

use std::ffi::{CStr, c_char, c_int, c_void};

use pgrx::{PgSqlErrorCode, pg_sys};

unsafe extern "C-unwind" {
    fn geterrcode() -> c_int;
    fn errhint(format: *const c_char, ...) -> c_int;
}

/// The argument of the callback: a hint, and the SQLSTATE to which it applies.
struct Given<'h> {
    code: PgSqlErrorCode,
    hint: &'h CStr,
}

/// Removes the callback when dropped, also when an error unwinds, because the callback's argument is on the stack of
/// `on`.
struct Former(*mut pg_sys::ErrorContextCallback);

impl Drop for Former {
    fn drop(&mut self) {
        // SAFETY: a variable of this process, restored to its value before the call of `on`.
        unsafe { pg_sys::error_context_stack = self.0 };
    }
}

/// Runs `work`. If Postgres raises an error with this SQLSTATE in it, adds the hint to the error.
pub fn on<R>(code: PgSqlErrorCode, hint: &CStr, work: impl FnOnce() -> R) -> R {
    let given = Given { code, hint };
    // SAFETY: a variable of this process. The link and its targets live until `work` has returned or unwound, and
    // `_former` removes the link before they end.
    unsafe {
        let former = Former(pg_sys::error_context_stack);
        let mut link = pg_sys::ErrorContextCallback {
            previous: former.0,
            callback: Some(give),
            arg: (&raw const given).cast_mut().cast(),
        };
        pg_sys::error_context_stack = &raw mut link;
        work()
    }
}

/// Sets the hint. Postgres calls this while it builds an error report, so it runs without pgrx's guard.
unsafe extern "C-unwind" fn give(given: *mut c_void) {
    // SAFETY: Postgres passes the link's argument, which lives as long as the link is in the list. Postgres is building
    // a report, so the code can read its SQLSTATE and set its hint.
    unsafe {
        let given = &*given.cast::<Given>();
        if geterrcode() == given.code as c_int {
            errhint(c"%s".as_ptr(), given.hint.as_ptr());
        }
    }
}
