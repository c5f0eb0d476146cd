//! Records which executors of the Redis protocol wait for a synchronous standby to acknowledge their commit, and when
//! each commit began.
//!
//! Standbys acknowledge commits in WAL order, so no commit is acknowledged before an earlier commit. Once an executor
//! has waited long, no other executor begins work that would wait, too; otherwise all executors would wait, and none
//! would serve reads.

use std::cell::Cell;
use std::ffi::c_char;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, fence};

use pgrx::pg_sys;

use crate::pg::resp::process::MOST_PROCESSES;
use crate::pg::session::clock;
use crate::pg::shmem::zeroed::{self, Piece};
use crate::pg::worker::background;

/// The time in microseconds after which a wait counts as long. A standby that keeps up acknowledges faster.
const LONG: i64 = 20_000;

/// The state of an executor that other processes read. All fields are zero if no executor runs.
#[repr(C)]
struct Executor {
    process: AtomicPtr<pg_sys::PGPROC>,
    pid: AtomicU32,
    /// The time at which its last commit began.
    since: AtomicI64,
}

#[repr(C)]
struct Shared {
    executors: [Executor; MOST_PROCESSES],
}

thread_local! {
    // The postmaster sets this before it forks; every process inherits it.
    static SHARED: Cell<Option<&'static Shared>> = const { Cell::new(None) };
}

/// Requests the shared memory; called once, while preloading.
pub fn register() {
    zeroed::register(Piece {
        name: c"pgcache resp standby waits",
        bytes: size_of::<Shared>(),
        unmade: 0,
        request: || {},
        given: |memory| {
            // SAFETY: the memory is aligned, has as many bytes, and lives as long as the server; zeros mean that no
            // executor runs, and everything is atomic.
            SHARED.set(Some(unsafe { memory.cast().as_ref() }));
        },
    });
}

fn back(number: usize) -> Option<&'static Executor> {
    SHARED.get()?.executors.get(number)
}

pub fn begin_executor(number: usize) {
    if let Some(executor) = back(number) {
        // SAFETY: a plain C variable of this process.
        executor.process.store(unsafe { pg_sys::MyProc }, Relaxed);
        executor.pid.store(background::own_pid(), Release);
    }
}

/// Records that this process, whose index is `number`, is about to commit.
pub fn begin(number: usize) {
    if let Some(executor) = back(number) {
        executor.since.store(clock::now(), Relaxed);
    }
}

impl Executor {
    fn waits(&self) -> bool {
        let (pid, process) = (self.pid.load(Acquire), self.process.load(Relaxed));
        // SAFETY: the executor itself has written the address, which is NULL or the address of a process's record, in
        // shared memory that lives as long as the server. Both words are read without a lock: if an executor has ended
        // and another process uses its record, the record no longer has the executor's process id.
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
    // An executor that ends its wait after this check must see all batches that were put aside before the check; the
    // fence ensures it.
    fence(SeqCst);
    SHARED
        .get()
        .into_iter()
        .flat_map(|shared| &shared.executors)
}

/// Returns whether any executor has been waiting long for a standby.
pub fn any_executor_waits() -> bool {
    executors().any(Executor::waits_long)
}

/// Returns whether all of the first `count` executors, except possibly `but`, have been waiting long.
pub fn all_other_executors_wait(count: usize, but: usize) -> bool {
    let mut others = executors().take(count).enumerate();
    others.all(|(number, executor)| number == but || executor.waits_long())
}

/// Returns whether the server names synchronous standbys, so that commits may have to wait.
pub fn standby_is_named() -> bool {
    // SAFETY: plain C variables of this process; the names are NULL or a C string of the settings.
    unsafe {
        let names: *const c_char = pg_sys::SyncRepStandbyNames;
        !names.is_null() && *names != 0 && pg_sys::max_wal_senders > 0
    }
}

/// Returns whether a commit requires a standby. `own` says whether the role's synchronous_commit does; if the role has
/// no setting (None), the server's setting decides.
pub fn is_required(own: Option<bool>) -> bool {
    let local = pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_LOCAL_FLUSH as i32;
    // SAFETY: a plain C variable of this process.
    let of_server = unsafe { pg_sys::synchronous_commit } > local;
    own.unwrap_or(of_server)
}
