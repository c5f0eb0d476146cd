//! pgcache's only ProcessUtility hook, and the order in which pgcache's modules act on a utility statement.
//!
//! 1. `two_phase_commit` records PREPARE TRANSACTION, because the callbacks that the statement calls read this record.
//! 2. `copied` may rewrite a COPY so that it also replaces expired rows.
//! 3. The hook that was installed before pgcache's, or Postgres itself, runs the statement.
//! 4. After a statement without an error, the hook notifies `copied`, then `two_phase_commit`.
//!
//! A statement may run further statements inside it, such as a function's COPY, so each statement keeps its state in
//! its own stack frame of this hook. An error jumps over these frames, which hold nothing to drop, and skips step 4:
//! the state then ends with the transaction or its savepoint.

use std::ffi::c_char;

use pgrx::pg_sys;

use super::two_phase_commit;
use crate::pg::hooks::expired_rows::copied;
use crate::pg::memory::unguarded;

static mut FORMER: pg_sys::ProcessUtility_hook_type = None;

/// Installs the hook.
pub fn register() {
    // SAFETY: called once while the library is loaded, when nothing else reads the variable; the
    // function lives as long as the process.
    unsafe {
        FORMER = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(run);
    }
}

/// Runs a statement. Postgres calls this for each utility statement. It has no `#[pg_guard]`, whose cost every utility
/// statement would pay although few of them concern a cache.
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
    // SAFETY: the arguments are Postgres' own and are passed on; a replaced statement is a copy of the given one. No
    // frame here holds anything to drop.
    unsafe {
        let transaction = two_phase_commit::begin((*given).utilityStmt);
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
        two_phase_commit::end(transaction);
    }
}
