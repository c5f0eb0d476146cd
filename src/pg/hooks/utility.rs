//! Statements that Postgres does not plan: the one hook into them, and the order of those who are concerned.
//!
//! 1. `prepared` notes that PREPARE TRANSACTION is asked for: the callbacks that the statement calls ask for that.
//! 2. `copied` may put a copy of a COPY in its place, which renews keys; nobody before it changes the statement.
//! 3. Whoever has hooked in before us runs the statement, or Postgres.
//! 4. When it has ended without an error, those who were called are told of it, backwards.
//!
//! A statement may run others inside of it, such as a function's COPY: what is remembered of each lies in its
//! own frame here. An error jumps over these frames, which hold nothing to drop, and leaves out the fourth step:
//! what was begun ends then with the transaction or its savepoint.

use std::ffi::c_char;

use pgrx::pg_sys;

use super::prepared;
use crate::pg::hooks::expired_rows::copied;
use crate::pg::memory::unguarded;

static mut FORMER: pg_sys::ProcessUtility_hook_type = None;

/// Hooks into statements that are not planned.
pub fn register() {
    // SAFETY: called once while the library is loaded, when nothing else reads the variable; the
    // function lives as long as the process.
    unsafe {
        FORMER = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(run);
    }
}

/// Postgres calls this for each statement that it does not plan, without pgrx's guard: few of them concern us.
unsafe extern "C-unwind" fn run(
    given: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the arguments are Postgres' own and are passed on; a statement in place of the given one
    // is a copy of it. No frame here holds anything to drop.
    unsafe {
        let transaction = prepared::begin((*given).utilityStmt);
        let copy = copied::begin(given);
        let statement = copy.map_or(given, |copy| copy.statement);
        let run = FORMER.unwrap_or(unguarded::standard_ProcessUtility);
        run(
            statement,
            text,
            read_only,
            context,
            parameters,
            environment,
            receiver,
            completion,
        );
        if let Some(copy) = copy {
            copied::end(copy, completion);
        }
        prepared::end(transaction);
    }
}
