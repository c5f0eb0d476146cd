//! The processes of the Redis protocol: how they begin. The launcher starts them and looks after them
//! (`crate::resp::supervisor`).

use std::cell::Cell;
use std::ffi::{CStr, CString};

use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::pg::resp::catalog_requests::Kind;
use crate::pg::worker::background::{self, Started};

/// What the processes do; each gets its number. Named by the layer above.
#[derive(Clone, Copy)]
pub struct Tasks {
    pub network: fn(number: usize),
    pub executor: fn(number: usize),
}

thread_local! {
    // Set by the postmaster before it forks; every process inherits it.
    static TASKS: Cell<Option<Tasks>> = const { Cell::new(None) };
}

/// Names what the processes do; only while preloading.
pub fn register(tasks: Tasks) {
    TASKS.set(Some(tasks));
}

/// Starts one; None when all of max_worker_processes are taken.
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

/// The setting max_worker_processes.
pub fn max_worker_processes() -> usize {
    // SAFETY: a plain C variable of this process.
    usize::try_from(unsafe { pg_sys::max_worker_processes }).unwrap_or(0)
}

/// A setting of the server's; None: it has none of that name.
pub fn setting(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name lives through the call; the value is NULL or a C string of the settings, or of
    // a buffer for numbers, and is copied at once.
    let value = unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        (!value.is_null()).then(|| CStr::from_ptr(value).to_owned())
    };
    value?.into_string().ok()
}

/// The user of the system that the server runs as.
pub fn user() -> u32 {
    // SAFETY: asks for a number of this process.
    unsafe { libc::geteuid() }
}

/// A network process process begins here.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pgcache_resp_network_main(number: pg_sys::Datum) {
    if let Some(tasks) = TASKS.get() {
        (tasks.network)(number.value());
    }
}

/// an executor process begins here.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pgcache_resp_executor_main(number: pg_sys::Datum) {
    if let Some(tasks) = TASKS.get() {
        (tasks.executor)(number.value());
    }
}
