//! Starts the processes of the Redis protocol, and holds their entry points. The launcher decides when to start and
//! restart them (`crate::resp::supervisor`).

use std::cell::Cell;
use std::ffi::{CStr, CString};

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::pg::worker::background::{self, Started};

/// The maximum number of processes of each kind.
pub const MOST_PROCESSES: usize = 16;

/// The kind of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Network,
    Executor,
}

/// The main functions of the processes, which `crate::resp` provides. Each receives the index of its process.
#[derive(Clone, Copy)]
pub struct Tasks {
    pub network: fn(number: usize),
    pub executor: fn(number: usize),
}

thread_local! {
    // The postmaster sets this before it forks; every process inherits it.
    static TASKS: Cell<Option<Tasks>> = const { Cell::new(None) };
}

/// Registers the main functions; called while preloading.
pub fn register(tasks: Tasks) {
    TASKS.set(Some(tasks));
}

/// Starts a process. Returns None if all of max_worker_processes are in use.
pub fn start(kind: Kind, number: usize) -> Option<Started> {
    match kind {
        Kind::Network => background::start_process(
            c"pgcache resp network",
            c"pgcache_resp_network_main",
            number,
        ),
        Kind::Executor => background::start_process(
            c"pgcache resp executor",
            c"pgcache_resp_executor_main",
            number,
        ),
    }
}

/// Returns the setting max_worker_processes.
pub fn max_worker_processes() -> usize {
    // SAFETY: a plain C variable of this process.
    usize::try_from(unsafe { pg_sys::max_worker_processes }).unwrap_or(0)
}

/// Returns whether Postgres starts its logical replication launcher, which takes one of `max_worker_processes`.
pub fn has_replication_launcher() -> bool {
    // SAFETY: a plain C variable of this process.
    unsafe { pg_sys::max_logical_replication_workers > 0 }
}

/// Returns a setting of the server; None if no setting has this name, or its value is not UTF-8.
pub fn setting(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name lives through the call; the value is NULL, or a C string in the settings or in a buffer for
    // numbers, and is copied at once.
    let value = unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        (!value.is_null()).then(|| CStr::from_ptr(value).to_owned())
    };
    value?.into_string().ok()
}

/// Returns the system user that runs the server.
pub fn user() -> u32 {
    // SAFETY: reads a number of this process.
    unsafe { libc::geteuid() }
}

/// Runs a network process.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pgcache_resp_network_main(number: pg_sys::Datum) {
    if let Some(tasks) = TASKS.get() {
        (tasks.network)(number.value());
    }
}

/// Runs an executor.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pgcache_resp_executor_main(number: pg_sys::Datum) {
    if let Some(tasks) = TASKS.get() {
        (tasks.executor)(number.value());
    }
}
