//! Checks for deadlocks and timeouts in waits outside Postgres' lock table, for example for another session's lease.
//! Postgres itself does not see these waits.

use std::collections::HashSet;
use std::time::Duration;

use pgrx::{FromDatum, pg_sys};

/// The maximum number of sessions that the deadlock check visits.
const MAX_CHAIN: usize = 64;

/// Returns whether the process waits, directly or indirectly, for a lock that this session holds. A session that waits
/// for a lease must check this itself, because Postgres' deadlock detector does not see waits for a lease.
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

/// Returns whether a wait has exceeded `lock_timeout`. Postgres checks the timeout only for waits in its own lock
/// queue.
pub fn is_too_long(waited: Duration) -> bool {
    // SAFETY: a plain C variable of this process.
    let longest = u64::try_from(unsafe { pg_sys::LockTimeout }).unwrap_or(0);
    longest > 0 && waited >= Duration::from_millis(longest)
}

/// Returns the processes that hold the locks for which a process waits (`pg_blocking_pids`).
fn blocking(process: i32) -> Vec<i32> {
    // SAFETY: the function takes an integer and returns an array of integers without nulls, in the current memory
    // context.
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
pub fn sleep(millis: i64) {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: every backend has a latch; the code below or the latch's waiter checks the reason for which it was set.
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
