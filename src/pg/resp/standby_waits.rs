//! Which executors of the Redis protocol wait in a commit for a synchronous standby, and since when.
//!
//! Standbys answer in the order of the log: whatever else waits for one is answered no sooner. So while one
//! back waits for long, no other one begins what would wait, too, and processes are left for the rest.

use std::cell::Cell;
use std::ffi::c_char;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, fence};

use pgrx::pg_sys;

use crate::pg::resp::catalog_requests::MOST_PROCESSES;
use crate::pg::session::clock;
use crate::pg::shmem::zeroed::{self, Piece};
use crate::pg::worker::background;

/// Microseconds after which a wait is a long one: a standby that answers is faster.
const LONG: i64 = 20_000;

/// What others know of an executor. Zeros: there is none.
#[repr(C)]
struct Executor {
    process: AtomicPtr<pg_sys::PGPROC>,
    pid: AtomicU32,
    /// When its last commit began.
    since: AtomicI64,
}

#[repr(C)]
struct Shared {
    executors: [Executor; MOST_PROCESSES],
}

thread_local! {
    // Set by the postmaster before it forks; every process inherits it.
    static SHARED: Cell<Option<&'static Shared>> = const { Cell::new(None) };
}

/// Asks for it at the start of the server; only while preloading, once.
pub fn register() {
    zeroed::register(Piece {
        name: c"pgcache resp standby waits",
        bytes: size_of::<Shared>(),
        unmade: 0,
        request: || {},
        given: |memory| {
            // SAFETY: as many bytes, aligned, for as long as the server lives; zeros are no executors, and all
            // is atomic.
            SHARED.set(Some(unsafe { memory.cast().as_ref() }));
        },
    });
}

fn back(number: usize) -> Option<&'static Executor> {
    SHARED.get()?.executors.get(number)
}

/// This process is the executor of this number.
pub fn begin_executor(number: usize) {
    if let Some(executor) = back(number) {
        // SAFETY: a plain C variable of this process.
        executor.process.store(unsafe { pg_sys::MyProc }, Relaxed);
        executor.pid.store(background::own_pid(), Release);
    }
}

/// This process, the executor of this number, is about to commit.
pub fn begin(number: usize) {
    if let Some(executor) = back(number) {
        executor.since.store(clock::now(), Relaxed);
    }
}

impl Executor {
    fn waits(&self) -> bool {
        let (pid, process) = (self.pid.load(Acquire), self.process.load(Relaxed));
        // SAFETY: its own process has written the address, which is NULL or that of one of the processes'
        // records, in shared memory for as long as the server lives. Both words are read as they are: who
        // has just ended, and has left its record to another process, has no longer its number there.
        unsafe {
            pid != 0
                && !process.is_null()
                && (&raw const (*process).pid).read_volatile() as u32 == pid
                && (&raw const (*process).syncRepState).read_volatile() as u32
                    == pg_sys::SYNC_REP_WAITING
        }
    }

    fn waits_long(&self) -> bool {
        self.waits() && clock::now() - self.since.load(Relaxed) >= LONG
    }
}

fn executors() -> impl Iterator<Item = &'static Executor> {
    // What was put aside before this look is seen by who ends its wait after it.
    fence(SeqCst);
    SHARED
        .get()
        .into_iter()
        .flat_map(|shared| &shared.executors)
}

/// Whether an executor waits for a standby for long.
pub fn somebody_waits() -> bool {
    executors().any(Executor::waits_long)
}

/// Whether all of the first so many executors but this one do.
pub fn all_others_wait(count: usize, but: usize) -> bool {
    let mut others = executors().take(count).enumerate();
    others.all(|(number, executor)| number == but || executor.waits_long())
}

/// Whether commits may have to wait for a standby at all.
pub fn standby_is_named() -> bool {
    // SAFETY: plain C variables of this process; the names are NULL or a C string of the settings.
    unsafe {
        let names: *const c_char = pg_sys::SyncRepStandbyNames;
        !names.is_null() && *names != 0 && pg_sys::max_wal_senders > 0
    }
}

/// Whether a role's synchronous_commit asks for a standby; None: the server's counts.
pub fn is_asked_for(own: Option<bool>) -> bool {
    let local = pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_LOCAL_FLUSH as i32;
    // SAFETY: a plain C variable of this process.
    let of_server = unsafe { pg_sys::synchronous_commit } > local;
    own.unwrap_or(of_server)
}
