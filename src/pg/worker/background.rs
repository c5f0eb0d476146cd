//! Background workers: how they are started, connect, sleep, end, and run transactions.
//!
//! Not what they do: that is `crate::worker`. Guards two rules. A worker is never in anybody's way:
//! it counts as an autovacuum worker, so CREATE and DROP DATABASE end it and whoever waits for one of
//! its locks cancels it. And an error ends its transaction, not the worker.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::pg::session::failure::Failure;
use crate::pg::version;

// Postgres' own signal handlers; pgrx' names for them are wrappers that a signal cannot call.
unsafe extern "C-unwind" {
    fn die(signal: i32);
    fn SignalHandlerForShutdownRequest(signal: i32);
    fn SignalHandlerForConfigReload(signal: i32);
}

/// Postgres' number of ProcArrayLock in versions 15 to 18.
const PROC_ARRAY_LOCK: usize = 4;
/// Seconds until the launcher is started again after it ended.
const RESTART_AFTER: i32 = 5;

/// What the processes do once they are connected; named by the layer above.
#[derive(Clone, Copy)]
pub struct Tasks {
    pub launcher: fn(),
    /// Gets what the launcher told it at its start.
    pub visit: fn(place: usize),
}

thread_local! {
    // Set by the postmaster before it forks; every process inherits it.
    static TASKS: Cell<Option<Tasks>> = const { Cell::new(None) };
}

/// Registers the launcher, which runs as long as the server does, on a standby too. Only while
/// preloading; not under pg_upgrade, where nothing may change behind its back.
pub fn register(tasks: Tasks) {
    TASKS.set(Some(tasks));
    // SAFETY: a plain C variable of this process.
    if unsafe { pg_sys::IsBinaryUpgrade } {
        return;
    }
    let mut worker = description(c"pgcache launcher", c"pgcache_launcher_main");
    worker.bgw_restart_time = RESTART_AFTER;
    // SAFETY: the description is copied.
    unsafe { pg_sys::RegisterBackgroundWorker(&mut worker) };
}

/// A worker that was started, as its starter knows it.
pub struct Started(*mut pg_sys::BackgroundWorkerHandle);

/// Starts a worker that is told `place`; None when all of max_worker_processes are taken.
pub fn start(place: usize) -> Option<Started> {
    let mut worker = description(c"pgcache worker", c"pgcache_worker_main");
    worker.bgw_restart_time = pg_sys::BGW_NEVER_RESTART;
    worker.bgw_main_arg = pg_sys::Datum::from(place);
    let mut handle = std::ptr::null_mut();
    // SAFETY: the description is copied; the handle is allocated in a memory context that lives as long
    // as the process, and freed by `drop`.
    unsafe {
        worker.bgw_notify_pid = pg_sys::MyProcPid;
        let former = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let started = pg_sys::RegisterDynamicBackgroundWorker(&mut worker, &mut handle);
        pg_sys::MemoryContextSwitchTo(former);
        started.then(|| Started(handle))
    }
}

impl Started {
    pub fn has_ended(&self) -> bool {
        let mut pid = 0;
        // SAFETY: the handle lives until drop.
        let status = unsafe { pg_sys::GetBackgroundWorkerPid(self.0, &mut pid) };
        status == pg_sys::BgwHandleStatus::BGWH_STOPPED
    }

    /// Ends it at the next place where it could be cancelled; code that catches cancellations does not catch this.
    pub fn terminate(&self) {
        // SAFETY: as above.
        unsafe { pg_sys::TerminateBackgroundWorker(self.0) };
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // SAFETY: allocated by RegisterDynamicBackgroundWorker, used by nobody else.
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

/// Copies a short text with its closing zero.
fn put(field: &mut [std::ffi::c_char], text: &CStr) {
    for (place, &byte) in field.iter_mut().zip(text.to_bytes_with_nul()) {
        *place = byte as std::ffi::c_char;
    }
}

/// The launcher's process begins here.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pgcache_launcher_main(_argument: pg_sys::Datum) {
    become_launcher();
    if let Some(tasks) = TASKS.get() {
        (tasks.launcher)();
    }
}

/// A visiting worker's process begins here. Its argument is what the launcher told it.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pgcache_worker_main(argument: pg_sys::Datum) {
    if let Some(tasks) = TASKS.get() {
        (tasks.visit)(argument.value());
    }
}

/// Makes the process the launcher: signals, and a connection to the catalogs that all databases share.
fn become_launcher() {
    // SAFETY: first thing in a background worker. The launcher looks at the flag that this handler of
    // SIGTERM sets.
    unsafe {
        version::on_signal(pg_sys::SIGTERM, SignalHandlerForShutdownRequest);
        connect(pg_sys::InvalidOid);
    }
    set(c"application_name", c"pgcache launcher");
}

/// Makes the process a worker in a database. SIGTERM ends it where it would end a session.
pub fn become_worker(database: Oid) {
    // SAFETY: as above.
    unsafe {
        version::on_signal(pg_sys::SIGTERM, die);
        connect(database);
        count_as_autovacuum();
    }
    settle();
}

/// # Safety
/// Once in a background worker, after its handler of SIGTERM is set.
unsafe fn connect(database: Oid) {
    // SAFETY: the caller keeps the rule.
    unsafe {
        version::on_signal(pg_sys::SIGHUP, SignalHandlerForConfigReload);
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0);
    }
}

/// CREATE DATABASE from ours as a template, DROP and ALTER DATABASE end autovacuum workers that are in
/// their way and refuse when others are; and who waits for a lock of an autovacuum worker cancels it.
///
/// # Safety
/// In a process that has a place in the array of processes.
unsafe fn count_as_autovacuum() {
    // SAFETY: the flags and their mirror change together, under the lock that Postgres itself takes.
    unsafe {
        let lock = &raw mut (*pg_sys::MainLWLockArray.add(PROC_ARRAY_LOCK)).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        (*pg_sys::MyProc).statusFlags |= pg_sys::PROC_IS_AUTOVACUUM as u8;
        *(*pg_sys::ProcGlobal)
            .statusFlags
            .add((*pg_sys::MyProc).pgxactoff as usize) = (*pg_sys::MyProc).statusFlags;
        pg_sys::LWLockRelease(lock);
    }
}

/// What a worker must not take from the settings of a database: the same as autovacuum's.
fn settle() {
    for (name, value) in [
        (c"application_name", c"pgcache worker"),
        (c"role", c"none"),
        (c"search_path", c""),
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_isolation", c"read committed"),
        (c"default_transaction_deferrable", c"off"),
        (c"session_replication_role", c"origin"),
        (c"statement_timeout", c"0"),
        (c"idle_in_transaction_session_timeout", c"0"),
        // A sweep that a crash undoes is done again.
        (c"synchronous_commit", c"off"),
    ] {
        set(name, value);
    }
    if let Some(name) = version::TRANSACTION_TIMEOUT {
        set(name, c"0");
    }
    set(c"lock_timeout", &patience());
}

/// Milliseconds that a worker waits for a lock. It takes none that others have; but what hangs on a row
/// that it removes, a trigger or a foreign key, may have to wait, and then who waits for us in turn must
/// find us gone before he finds a deadlock.
fn patience() -> CString {
    // SAFETY: a plain C variable of this process.
    let half = unsafe { pg_sys::DeadlockTimeout } / 2;
    CString::new(half.max(1).to_string()).unwrap_or_default()
}

fn set(name: &CStr, value: &CStr) {
    // SAFETY: both texts are copied.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
}

/// The number of this process.
pub fn own_pid() -> u32 {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::MyProcPid as u32 }
}

/// Ends the sleep of a process of this server; of one that is gone, nothing.
pub fn wake(pid: u32) {
    // SAFETY: latches of processes lie in shared memory for as long as the server lives. Who has taken the
    // place of one that has just ended is woken for nothing, which every sleeper must bear.
    unsafe {
        let process = pg_sys::BackendPidGetProc(pid as i32);
        if !process.is_null() {
            pg_sys::SetLatch(&raw mut (*process).procLatch);
        }
    }
}

/// Whether the launcher was asked to end.
pub fn asked_to_end() -> bool {
    // SAFETY: a flag that the signal handler sets.
    unsafe { (&raw const pg_sys::ShutdownRequestPending).read_volatile() != 0 }
}

/// Ends the process. Code 1 lets the postmaster start the launcher again.
pub fn end(code: i32) -> ! {
    // SAFETY: runs the exit callbacks.
    unsafe { version::proc_exit(code) }
}

/// Takes over changed settings. Outside of transactions only.
pub fn reload_if_asked() {
    // SAFETY: the flag is set by the signal handler; this is the main loop of a process.
    unsafe {
        if (&raw const pg_sys::ConfigReloadPending).read_volatile() != 0 {
            (&raw mut pg_sys::ConfigReloadPending).write_volatile(0);
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
}

/// Sleeps until a signal comes or the time is up; None: until a signal comes. Ends with the postmaster,
/// and with a worker that is terminated.
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

/// Shows in pg_stat_activity what the process does; None: it waits.
pub fn show(activity: Option<&str>) {
    let state = match activity {
        Some(_) => pg_sys::BackendState::STATE_RUNNING,
        None => pg_sys::BackendState::STATE_IDLE,
    };
    let text = activity.map(|text| CString::new(text).unwrap_or_default());
    let pointer = text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
    // SAFETY: the text is copied.
    unsafe { pg_sys::pgstat_report_activity(state, pointer) };
}

/// Runs in a transaction of its own, which is rolled back after an error. The statistics of what it did
/// are reported at once.
pub fn in_transaction<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    without_snapshot(|| {
        // SAFETY: what SPI asks for, given back before the transaction ends; after an error the abort
        // does it.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot()) };
        let result = work();
        // SAFETY: as above.
        unsafe { pg_sys::PopActiveSnapshot() };
        result
    })
}

/// The same for a statement that ends the transaction itself and leaves another one open.
pub fn without_snapshot<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    guarded(|| {
        // SAFETY: no transaction is open in a worker's main loop.
        unsafe {
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
        }
        let result = work();
        // SAFETY: the transaction started above, or the one that `work` left open in its place.
        unsafe {
            pg_sys::CommitTransactionCommand();
            pg_sys::pgstat_report_stat(true);
        }
        result
    })
}

/// Catches an error of Postgres and ends the transaction in which it came. Session state of ours is
/// reset at each transaction's end, so nothing is looked at in the state that an error left.
fn guarded<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    PgTryBuilder::new(AssertUnwindSafe(|| Ok(work())))
        .catch_others(|error| {
            // SAFETY: rolls back whatever is open, locks and SPI included.
            unsafe { pg_sys::AbortCurrentTransaction() };
            Err(Failure::of(error))
        })
        .execute()
}
