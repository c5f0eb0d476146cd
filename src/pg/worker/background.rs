//! Starts, wakes and terminates background workers, lets them sleep, and runs their transactions.
//!
//! `crate::worker` defines the workers' tasks. An error ends a worker's transaction, never the worker itself.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::connect;
use crate::pg::session::failure::Failure;
use crate::pg::version;

/// The class of wait events for a pinned page. It is declared here, because its name changed in Postgres 17.
const WAIT_FOR_PAGE: u32 = 4;
/// Seconds until the postmaster starts the launcher again after its end.
const RESTART_AFTER: i32 = 5;

/// The tasks that the processes run after they have connected; `crate::worker` provides them.
#[derive(Clone, Copy)]
pub struct Tasks {
    pub launcher: fn(),
    /// A further task, which the launcher runs at each wake-up. Returns the time until it must run again.
    pub beside: fn() -> Option<Duration>,
    /// The task of a worker, which receives the index of its visit in `shmem::worker_state`.
    pub visit: fn(place: usize),
}

thread_local! {
    // The postmaster sets this before it forks; every process inherits it.
    static TASKS: Cell<Option<Tasks>> = const { Cell::new(None) };
}

/// Registers the launcher, which runs as long as the server does, also on a standby. The caller is preloading the
/// library. Does nothing under pg_upgrade, because no background process may change data during an upgrade.
pub fn register(tasks: Tasks) {
    TASKS.set(Some(tasks));
    // SAFETY: a plain C variable of this process.
    if unsafe { pg_sys::IsBinaryUpgrade } {
        return;
    }
    let mut worker = description(c"pgcache launcher", c"pgcache_launcher_main");
    worker.bgw_restart_time = RESTART_AFTER;
    // SAFETY: this runs in the postmaster while preloading, when workers may be registered; Postgres copies the
    // description.
    unsafe { pg_sys::RegisterBackgroundWorker(&mut worker) };
}

/// A handle of a worker, for the process that started it.
pub struct Started(*mut pg_sys::BackgroundWorkerHandle);

/// Runs the launcher's further task, [`Tasks::beside`].
pub fn do_beside() -> Option<Duration> {
    TASKS.get().and_then(|tasks| (tasks.beside)())
}

/// Starts a worker for visit `place`. Returns None if all of max_worker_processes are in use.
pub fn start(place: usize) -> Option<Started> {
    start_process(c"pgcache worker", c"pgcache_worker_main", place)
}

/// Starts a process with this name, which calls this function of the library with the number `place`. Returns None if
/// all of max_worker_processes are in use.
pub fn start_process(name: &CStr, function: &CStr, place: usize) -> Option<Started> {
    let mut worker = description(name, function);
    worker.bgw_restart_time = pg_sys::BGW_NEVER_RESTART;
    worker.bgw_main_arg = pg_sys::Datum::from(place);
    let mut handle = std::ptr::null_mut();
    // SAFETY: Postgres copies the description; the handle is in a memory context that lives as long as the process, and
    // `drop` frees it.
    unsafe {
        worker.bgw_notify_pid = pg_sys::MyProcPid;
        let former = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let started = pg_sys::RegisterDynamicBackgroundWorker(&mut worker, &mut handle);
        pg_sys::MemoryContextSwitchTo(former);
        started.then(|| Started(handle))
    }
}

impl Started {
    /// Returns whether the worker has ended.
    pub fn has_ended(&self) -> bool {
        let mut pid = 0;
        // SAFETY: the handle lives until drop.
        let status = unsafe { pg_sys::GetBackgroundWorkerPid(self.0, &mut pid) };
        status == pg_sys::BgwHandleStatus::BGWH_STOPPED
    }

    /// Returns whether the worker waits for other sessions to unpin a page of a table or an index.
    pub fn waits_for_page(&self) -> bool {
        let Some(pid) = self.pid() else { return false };
        // SAFETY: the array of processes is in shared memory as long as the server runs. If the process has just ended,
        // the code may read its successor in the array, and the answer is wrong for a moment.
        unsafe {
            let process = pg_sys::BackendPidGetProc(pid);
            !process.is_null()
                && (&raw const (*process).wait_event_info).read_volatile() >> 24 == WAIT_FOR_PAGE
        }
    }

    /// Cancels the worker's current work (SIGINT).
    pub fn cancel(&self) {
        unsafe extern "C" {
            safe fn kill(pid: i32, signal: i32) -> i32;
        }
        if let Some(pid) = self.pid() {
            kill(pid, pg_sys::SIGINT as i32);
        }
    }

    fn pid(&self) -> Option<i32> {
        let mut pid = 0;
        // SAFETY: the handle lives until drop.
        let status = unsafe { pg_sys::GetBackgroundWorkerPid(self.0, &mut pid) };
        (status == pg_sys::BgwHandleStatus::BGWH_STARTED).then_some(pid)
    }

    /// Terminates the worker at its next check for interrupts. Code that catches a cancellation does not catch a
    /// termination.
    pub fn terminate(&self) {
        // SAFETY: the handle lives until drop; the call is harmless for a worker that has ended.
        unsafe { pg_sys::TerminateBackgroundWorker(self.0) };
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // SAFETY: RegisterDynamicBackgroundWorker allocated the handle, and no code uses it after this.
        unsafe { pg_sys::pfree(self.0.cast()) };
    }
}

fn description(name: &CStr, function: &CStr) -> pg_sys::BackgroundWorker {
    let mut worker = pg_sys::BackgroundWorker::default();
    put(&mut worker.bgw_name, name);
    put(&mut worker.bgw_type, name);
    put(&mut worker.bgw_function_name, function);
    put(&mut worker.bgw_library_name, c"pgcache");
    worker.bgw_flags =
        (pg_sys::BGWORKER_SHMEM_ACCESS | pg_sys::BGWORKER_BACKEND_DATABASE_CONNECTION) as i32;
    worker.bgw_start_time = pg_sys::BgWorkerStartTime::BgWorkerStart_ConsistentState;
    worker
}

/// Copies a short text and its closing NUL.
fn put(field: &mut [std::ffi::c_char], text: &CStr) {
    for (place, &byte) in field.iter_mut().zip(text.to_bytes_with_nul()) {
        *place = byte as std::ffi::c_char;
    }
}

/// The entry point of the launcher's process.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pgcache_launcher_main(_argument: pg_sys::Datum) {
    connect::as_launcher();
    if let Some(tasks) = TASKS.get() {
        (tasks.launcher)();
    }
}

/// The entry point of a worker's process. Its argument is the index of its visit.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pgcache_worker_main(argument: pg_sys::Datum) {
    if let Some(tasks) = TASKS.get() {
        (tasks.visit)(argument.value());
    }
}

/// Returns the process id of this process.
pub fn own_pid() -> u32 {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::MyProcPid as u32 }
}

/// Wakes a sleeping process of this server. Does nothing if the process has ended.
pub fn wake(pid: u32) {
    // SAFETY: the latches of processes are in shared memory as long as the server runs. If the process has just ended,
    // this wakes its successor in the array needlessly, which every sleeping process tolerates.
    unsafe {
        let process = pg_sys::BackendPidGetProc(pid as i32);
        if !process.is_null() {
            pg_sys::SetLatch(&raw mut (*process).procLatch);
        }
    }
}

/// Ends this process if the postmaster has ended. A process that does not sleep must call this, because only a sleep
/// ends with the postmaster.
pub fn end_with_postmaster() {
    unsafe extern "C-unwind" {
        // A system call, which raises no error.
        safe fn PostmasterIsAliveInternal() -> bool;
    }
    if !PostmasterIsAliveInternal() {
        end(1);
    }
}

/// Returns whether the server has a process with this id.
pub fn is_there(pid: u32) -> bool {
    // SAFETY: searches the array of processes, which is in shared memory.
    unsafe { !pg_sys::BackendPidGetProc(pid as i32).is_null() }
}

/// Returns whether this process was requested to exit. The process must have the SIGTERM handler that `connect` sets.
pub fn is_end_requested() -> bool {
    // SAFETY: a signal handler of this process writes the variable, so the read is volatile.
    unsafe { (&raw const pg_sys::ShutdownRequestPending).read_volatile() != 0 }
}

/// Requests that this process exit, as SIGTERM does.
pub fn request_end_of_process() {
    // SAFETY: apart from this function, only signal handlers of this process write the variable.
    unsafe { (&raw mut pg_sys::ShutdownRequestPending).write_volatile(1) };
}

/// Ends this process. With code 1 the postmaster starts the launcher again.
pub fn end(code: i32) -> ! {
    // SAFETY: callers are a worker's main loop or its entry point, where all values that Rust would have to drop may
    // end with the process.
    unsafe { version::proc_exit(code) }
}

/// Reads the configuration file again if a reload was requested (SIGHUP). Returns whether it was. The caller is outside
/// a transaction.
pub fn reload_if_requested() -> bool {
    // SAFETY: a signal handler sets the flag; the caller is the main loop of a process.
    unsafe {
        let requested = (&raw const pg_sys::ConfigReloadPending).read_volatile() != 0;
        if requested {
            (&raw mut pg_sys::ConfigReloadPending).write_volatile(0);
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
        requested
    }
}

/// Sleeps until the latch is set or the time is over; if `time` is None, until the latch is set. Ends the process if
/// the postmaster ends or the worker is terminated.
pub fn sleep(time: Option<Duration>) {
    let (timeout, flag) = match time {
        Some(time) => (
            time.as_millis().min(i32::MAX as u128) as i64,
            pg_sys::WL_TIMEOUT,
        ),
        None => (-1, 0),
    };
    let events = (pg_sys::WL_LATCH_SET | pg_sys::WL_EXIT_ON_PM_DEATH | flag) as i32;
    // SAFETY: the latch is the process' own.
    unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, events, timeout, version::idle_wait_event());
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    pgrx::check_for_interrupts!();
}

/// Sleeps until the latch is set. Ends the process if the postmaster ends, but leaves the check for signals to the
/// caller.
pub fn rest() {
    let events = (pg_sys::WL_LATCH_SET | pg_sys::WL_EXIT_ON_PM_DEATH) as i32;
    // SAFETY: the latch is the process' own.
    unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, events, -1, version::resp_wait_event());
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
}

/// Sleeps as [`rest`] does, but at most for this time. Returns whether the latch was set.
pub fn rest_for(time: Duration) -> bool {
    let events = (pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH) as i32;
    let milliseconds = time.as_millis().min(i32::MAX as u128) as std::ffi::c_long;
    // SAFETY: the latch is the process' own.
    unsafe {
        let event = version::resp_wait_event();
        let came = pg_sys::WaitLatch(pg_sys::MyLatch, events, milliseconds, event);
        pg_sys::ResetLatch(pg_sys::MyLatch);
        came & pg_sys::WL_LATCH_SET as i32 != 0
    }
}

/// Reports the process's statistics: at once with `now`, otherwise only if some time has passed since the last report.
/// The caller is outside a transaction.
pub fn report_statistics(now: bool) {
    // SAFETY: no transaction is open.
    unsafe { pg_sys::pgstat_report_stat(now) };
}

/// Shows the process's activity in pg_stat_activity; None means that the process is idle.
pub fn show(activity: Option<&str>) {
    let state = match activity {
        Some(_) => pg_sys::BackendState::STATE_RUNNING,
        None => pg_sys::BackendState::STATE_IDLE,
    };
    let text = activity.map(|text| CString::new(text).unwrap_or_default());
    let pointer = text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
    // SAFETY: the pointer is NULL or a C string that lives through the call, which copies it.
    unsafe { pg_sys::pgstat_report_activity(state, pointer) };
}

/// Runs `work` in a separate transaction. Rolls back after an error, and returns the error. Reports the transaction's
/// statistics at once.
pub fn in_transaction<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    without_snapshot(|| {
        // SAFETY: SPI needs the snapshot; the code pops it before the transaction ends, or after an error the abort
        // does.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot()) };
        let result = work();
        // SAFETY: this pops the snapshot from above; `work` has popped its own snapshots.
        unsafe { pg_sys::PopActiveSnapshot() };
        result
    })
}

/// Runs `work` in a transaction without a snapshot, for a statement that itself ends the transaction and leaves another
/// transaction open (VACUUM). Handles errors and statistics as [`in_transaction`] does.
pub fn without_snapshot<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    caught(|| {
        // SAFETY: no transaction is open in a worker's main loop.
        unsafe {
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
        }
        let result = work();
        // SAFETY: this commits the transaction from above, or the transaction that `work` left open in its place.
        unsafe {
            pg_sys::CommitTransactionCommand();
            pg_sys::pgstat_report_stat(true);
        }
        result
    })
}

/// Runs `work` in a transaction that reads no table. The start of the transaction processes the invalidation messages
/// that other sessions have sent since the last transaction. Callers must never wait for another process, and so `work`
/// must not wait.
pub fn in_turn<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    caught(|| {
        // SAFETY: no transaction is open in a worker's main loop.
        unsafe { pg_sys::StartTransactionCommand() };
        let result = work();
        // SAFETY: this commits the transaction from above.
        unsafe { pg_sys::CommitTransactionCommand() };
        result
    })
}

/// Handles signals of other processes, such as a barrier or a request for a report. Ignores a cancellation, which
/// has no meaning here.
pub fn obey_interrupts() -> Result<(), Failure> {
    // SAFETY: plain C variables of this process that signal handlers write.
    unsafe {
        (&raw mut pg_sys::QueryCancelPending).write_volatile(0);
        if (&raw const pg_sys::InterruptPending).read_volatile() == 0 {
            return Ok(());
        }
    }
    caught(|| {
        pgrx::check_for_interrupts!();
    })
}

/// Runs `work`, and after an error aborts the transaction and returns the error. The end of each transaction resets
/// pgcache's session state, so no code reads state that an error left behind.
pub(super) fn caught<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    PgTryBuilder::new(AssertUnwindSafe(|| Ok(work())))
        .catch_others(|error| {
            // SAFETY: the call rolls back the open transaction, including locks and SPI.
            unsafe { pg_sys::AbortCurrentTransaction() };
            Err(Failure::of(error))
        })
        .execute()
}
