//! Waiting for another session outside of Postgres' lock table, and what makes that safe.

use std::collections::HashSet;

use pgrx::{FromDatum, pg_sys};

/// How far a chain of sessions that wait for each other is followed.
const MAX_CHAIN: usize = 64;

/// Whether the process waits, directly or through others, for a lock that this session holds. The
/// deadlock detector does not see who waits for a lease; who does asks this himself.
pub fn waits_for_us(process: i32) -> bool {
    // SAFETY: a plain C variable of this process.
    let us = unsafe { pg_sys::MyProcPid };
    let mut seen = HashSet::from([process]);
    let mut next = vec![process];
    while let Some(waiting) = next.pop() {
        for blocking in blocking(waiting) {
            if blocking == us {
                return true;
            }
            if seen.len() < MAX_CHAIN && seen.insert(blocking) {
                next.push(blocking);
            }
        }
    }
    false
}

/// `pg_blocking_pids`: whose locks a process waits for.
fn blocking(process: i32) -> Vec<i32> {
    // SAFETY: the function takes an integer and gives an array of integers without nulls, in the
    // current memory context.
    unsafe {
        pgrx::direct_function_call_as_datum(
            pg_sys::pg_blocking_pids,
            &[Some(pg_sys::Datum::from(process))],
        )
        .and_then(|array| Vec::from_datum(array, false))
        .unwrap_or_default()
    }
}

/// Sleeps for some milliseconds; raises an error when the statement is cancelled.
pub fn pause(millis: i64) {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: every backend has a latch; what set it is looked at below, or by who asked for it.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            events as i32,
            millis,
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    pgrx::check_for_interrupts!();
}
