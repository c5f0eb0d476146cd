//! Installs the hooks that Postgres calls when the executor starts and runs a planned statement.

use std::ffi::c_int;

use pgrx::pg_sys;

unsafe extern "C-unwind" {
    // pgcache calls these if no former hook exists. They need no pgrx guard, because the hooks' frames hold nothing to
    // drop.
    fn standard_ExecutorStart(query: *mut pg_sys::QueryDesc, flags: c_int);
    fn standard_ExecutorRun(
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        rows: u64,
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))] only: bool,
    );
}

/// A function that receives a statement after the executor has started it.
pub type Begun = unsafe fn(*mut pg_sys::QueryDesc);

/// A function that returns whether a started statement may use parallel workers.
pub type MayBeParallel = unsafe fn(*mut pg_sys::QueryDesc) -> bool;

static mut FORMER_START: pg_sys::ExecutorStart_hook_type = None;
static mut FORMER_RUN: pg_sys::ExecutorRun_hook_type = None;
static mut BEGUN: Option<Begun> = None;
static mut MAY_BE_PARALLEL: Option<MayBeParallel> = None;

/// Calls `begun` after each start of a statement, and `may_be_parallel` before each run.
///
/// # Safety
/// The caller calls this once, while the library is loaded. Both may raise only over frames that hold nothing to drop.
pub unsafe fn on_statements(begun: Begun, may_be_parallel: MayBeParallel) {
    // SAFETY: no other thread reads the variables; the functions live as long as the process.
    unsafe {
        BEGUN = Some(begun);
        MAY_BE_PARALLEL = Some(may_be_parallel);
        FORMER_START = pg_sys::ExecutorStart_hook;
        FORMER_RUN = pg_sys::ExecutorRun_hook;
        pg_sys::ExecutorStart_hook = Some(start);
        pg_sys::ExecutorRun_hook = Some(run);
    }
}

unsafe extern "C-unwind" fn start(query: *mut pg_sys::QueryDesc, flags: c_int) {
    // SAFETY: the arguments are Postgres' own and are passed on; no frame here holds anything to drop.
    unsafe {
        FORMER_START.unwrap_or(standard_ExecutorStart)(query, flags);
        if let Some(begun) = BEGUN {
            begun(query);
        }
    }
}

/// Runs a statement, with parallel workers only if `may_be_parallel` allows them. To run it without workers, marks it
/// as already executed. Minor releases of Postgres 15 to 17 from before the end of 2024 read the last argument instead,
/// which says whether this is the only run.
unsafe extern "C-unwind" fn run(
    query: *mut pg_sys::QueryDesc,
    direction: pg_sys::ScanDirection::Type,
    rows: u64,
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))] mut only: bool,
) {
    // SAFETY: the arguments are Postgres' own and are passed on; no frame here holds anything to drop.
    unsafe {
        if MAY_BE_PARALLEL.is_some_and(|may| !may(query)) {
            (*query).already_executed = true;
            #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
            {
                only = false;
            }
        }
        FORMER_RUN.unwrap_or(standard_ExecutorRun)(
            query,
            direction,
            rows,
            #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
            only,
        );
    }
}
