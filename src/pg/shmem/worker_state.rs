//! State in shared memory through which the sweepers and writers of all caches inform and wake each other.
//!
//! No decision about an entry depends on this state, and no session reads a value from it. If it is lost or out of
//! date, the only cost is work that is done twice. So it needs no lock. Only one sweeper at a time uses the
//! [`SweepState`] of a cache (`advisory::try_sweep`); writers only add to its sums and request a VACUUM. At worst, two
//! caches share one state and overwrite each other's content.
//!
//! The state exists if `shared_preload_libraries` loads the library, even if `pgcache.hot_size` is 0. Otherwise its
//! bytes count towards `hot_size`.

use std::cell::Cell;
use std::mem::size_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use std::time::Duration;

use pgrx::pg_sys::{self, Oid};

use super::cache_id::{AtomicCacheId, CacheId};
pub use super::sweep_state::SweepState;
use crate::pg::version::ADDIN_SHMEM_INIT_LOCK;
use crate::pg::worker::background;

/// The bytes of `hot_size` for each sweep state.
const BYTES_PER_STATE: usize = 32 * 1024;
/// The smallest number of states.
const MIN_STATES: usize = 64;
/// The largest number of states.
const MAX_STATES: usize = 4096;
/// The maximum number of databases that workers visit at the same time.
pub const VISITS: usize = 3;

/// State shared by the launcher and the worker of one visit.
#[repr(C)]
pub struct VisitState {
    pub database: AtomicU32,
    outcome: AtomicU32,
    /// The time at which the current step of a sweep began; 0 if no step is running.
    pub step_began: AtomicI64,
    /// The cache of the current step.
    pub cache: AtomicCacheId,
    /// The worker's pid while it responds to requests for a VACUUM; otherwise 0.
    worker: AtomicU32,
    /// Whether the visit only responds to requests for a VACUUM, and sweeps nothing.
    pub only_vacuums: AtomicBool,
    /// The time that the worker may stay in the database before the launcher must start another visit, in microseconds.
    longest: AtomicU64,
}

/// The result of a worker's visit to its database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The worker ended before it had a result.
    Unknown,
    /// The database lacks the extension.
    NoExtension,
    Swept,
}

#[repr(C)]
struct Head {
    /// Grows whenever an extension is created or updated in any database.
    extension_generation: AtomicU64,
    /// 1 if a transaction that created or updated an extension was prepared since the server's start.
    extension_prepared: AtomicU32,
    /// The number of VACUUM requests that writers have made.
    vacuum_requests: AtomicU64,
    /// The partition of the hot tier at which the next sweep of memory caches begins.
    partition: AtomicU32,
    /// The launcher's pid; 0 if no launcher has run.
    launcher: AtomicU32,
    /// Whether a database is due for a visit, but all visits or all workers are in use.
    place_wanted: AtomicBool,
    visits: [VisitState; VISITS],
}

/// The workers' shared memory.
#[derive(Clone, Copy)]
pub struct WorkerShmem {
    head: &'static Head,
    states: &'static [SweepState],
}

thread_local! {
    // The postmaster sets this before it forks; every backend inherits it.
    static WORKER_SHMEM: Cell<Option<WorkerShmem>> = const { Cell::new(None) };
}

/// Returns the workers' shared memory; None if `shared_preload_libraries` did not load the library.
pub fn worker_shmem() -> Option<WorkerShmem> {
    WORKER_SHMEM.get()
}

fn states(hot_size: usize) -> usize {
    match hot_size {
        0 => MAX_STATES / 2,
        _ => (hot_size / BYTES_PER_STATE).clamp(MIN_STATES, MAX_STATES),
    }
}

/// Returns the bytes that this state takes on a server with this `pgcache.hot_size`, also in bytes.
pub fn bytes(hot_size: usize) -> usize {
    64 + size_of::<Head>().next_multiple_of(64) + states(hot_size) * size_of::<SweepState>()
}

/// Requests the memory. Only the request hook may call this.
pub fn request(hot_size: usize) {
    // SAFETY: the caller is the request hook, the only code that may do so.
    unsafe { pg_sys::RequestAddinShmemSpace(bytes(hot_size)) };
}

/// Attaches to the memory, and initialises it if it is new. Only the startup hook may call this.
pub fn attach(hot_size: usize) {
    let mut found = false;
    // SAFETY: `bytes` bytes were requested. The head and the states follow each other at aligned offsets inside the
    // memory; they are atomics, for which any bit pattern is valid, and the first process to attach, which the lock
    // determines, zeroes them.
    unsafe {
        let lock = &raw mut (*pg_sys::MainLWLockArray.add(ADDIN_SHMEM_INIT_LOCK)).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let memory: *mut u8 =
            pg_sys::ShmemInitStruct(c"pgcache board".as_ptr(), bytes(hot_size), &mut found).cast();
        if !found {
            memory.write_bytes(0, bytes(hot_size));
        }
        let base = memory.add(memory.align_offset(64));
        let states_at = size_of::<Head>().next_multiple_of(64);
        WORKER_SHMEM.set(Some(WorkerShmem {
            head: &*base.cast(),
            states: std::slice::from_raw_parts(base.add(states_at).cast(), states(hot_size)),
        }));
        pg_sys::LWLockRelease(lock);
    }
}

/// Records that an extension was created or updated, so that the launcher visits databases again that lacked pgcache.
pub fn extension_changed() {
    if let Some(shmem) = worker_shmem() {
        shmem.head.extension_generation.fetch_add(1, Relaxed);
    }
}

/// Records that a transaction that created or updated an extension was prepared. The session that later decides it does
/// not know its commands, and reads this record instead.
pub fn extension_prepared() {
    if let Some(shmem) = worker_shmem() {
        shmem.head.extension_prepared.store(1, Relaxed);
    }
}

/// Records that a prepared transaction was decided. It counts as a change of an extension if any transaction prepared
/// since the server's start has created or updated an extension.
pub fn prepared_ended() {
    if worker_shmem().is_some_and(|shmem| shmem.head.extension_prepared.load(Relaxed) != 0) {
        extension_changed();
    }
}

impl WorkerShmem {
    /// Returns a number that changes when an extension is created or updated in any database.
    pub fn extension_generation(&self) -> u64 {
        self.head.extension_generation.load(Relaxed)
    }

    /// Returns the partition of the hot tier at which the next sweep of memory caches begins.
    pub fn partition(&self) -> &'static AtomicU32 {
        &self.head.partition
    }

    /// Returns the state of visit `place`, a number below [`VISITS`].
    pub fn visit(&self, place: usize) -> &'static VisitState {
        &self.head.visits[place % VISITS]
    }

    /// Returns the number of VACUUM requests that writers have made.
    pub fn vacuum_requests(&self) -> u64 {
        self.head.vacuum_requests.load(Acquire)
    }

    /// Registers this process as the launcher.
    pub fn set_launcher(&self) {
        self.head.launcher.store(background::own_pid(), Relaxed);
    }

    /// Requests a VACUUM of a cache whose dead bytes cannot wait for the next sweep. Wakes the worker that visits the
    /// cache's database, or the launcher if no worker visits it. The end of a worker also wakes the launcher, so no
    /// request is lost.
    pub fn request_vacuum(&self, state: &SweepState) {
        if state.vacuum_requested.swap(1, Relaxed) == 1 {
            return;
        }
        self.head.vacuum_requests.fetch_add(1, Release);
        let database = state.database().map_or(0, Oid::to_u32);
        let here = |visit: &&VisitState| visit.database.load(Relaxed) == database;
        let worker = self
            .head
            .visits
            .iter()
            .filter(here)
            .map(|visit| visit.worker.load(Relaxed))
            .find(|&worker| worker != 0);
        background::wake(worker.unwrap_or(self.head.launcher.load(Relaxed)));
    }

    /// Returns the database of each cache with a VACUUM request, so a database may come more than once.
    pub fn databases_to_vacuum(&self) -> impl Iterator<Item = Oid> {
        self.states
            .iter()
            .filter(|state| state.vacuum_requested.load(Relaxed) != 0)
            .filter_map(SweepState::database)
    }

    /// Sets whether a database waits for another visit to end or for a free worker.
    pub fn set_place_wanted(&self, wanted: bool) {
        self.head.place_wanted.store(wanted, Relaxed);
    }

    /// Returns whether a visit should end as soon as it can, because another database waits for a visit.
    pub fn is_place_wanted(&self) -> bool {
        self.head.place_wanted.load(Relaxed)
    }

    /// Returns the state of a cache, if it has one.
    pub fn find(&self, cache: CacheId) -> Option<&'static SweepState> {
        self.places(cache)
            .map_while(|state| Some((state.cache.load(Relaxed)?, state)))
            .find_map(|(found, state)| (found == cache).then_some(state))
    }

    /// Returns all states in the order in which a cache searches for its state. A state in use is never freed, so after
    /// a free state the search can stop.
    fn places(&self, cache: CacheId) -> impl Iterator<Item = &'static SweepState> {
        let first = (cache.mixed() >> 32) as usize % self.states.len();
        let (before, from) = self.states.split_at(first);
        from.iter().chain(before)
    }

    /// Returns the states of a database's caches, each with the cache's relation.
    pub fn of_database(&self, database: Oid) -> impl Iterator<Item = (Oid, &'static SweepState)> {
        self.states.iter().filter_map(move |state| {
            let cache = state.cache.load(Relaxed)?;
            (cache.database() == database).then_some((cache.relation(), state))
        })
    }

    /// Returns the state of a cache for its sweeper: its own state, a free one, or one that it takes from another
    /// cache. If there are more caches than states, a cache without a state takes only the first state of its search
    /// order, so most caches keep theirs; if each of these caches took the oldest state instead, every cache would lose
    /// its state in turn.
    pub fn sweep_state(&self, cache: CacheId) -> &'static SweepState {
        let own = self
            .places(cache)
            .find(|state| state.cache.claim(cache, Relaxed));
        own.unwrap_or_else(|| {
            let place = self.places(cache).next().unwrap_or(&self.states[0]);
            place.reset();
            place.cache.store(Some(cache), Relaxed);
            place
        })
    }

    /// Returns the state of a cache for a writer. Returns the cache's own state or, if `may_have_one` returns true, a
    /// free state; otherwise None. Checks only a few states, and takes no other cache's state.
    pub fn own_or_free(
        &self,
        cache: CacheId,
        may_have_one: impl FnOnce() -> bool,
    ) -> Option<&'static SweepState> {
        const LOOKS: usize = 16;
        let near = || self.places(cache).take(LOOKS);
        let own = near().find(|state| state.cache.is(cache, Relaxed));
        own.or_else(|| {
            may_have_one().then(|| near().find(|state| state.cache.claim(cache, Relaxed)))?
        })
    }
}

impl VisitState {
    /// Registers this process as the worker that is woken by VACUUM requests.
    pub fn begin_answering(&self) {
        self.worker.store(background::own_pid(), Relaxed);
    }

    /// Ends the registration, because the worker responds to no more requests, or has ended.
    pub fn end_answering(&self) {
        self.worker.store(0, Relaxed);
    }

    /// Returns the time that the worker may stay.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Relaxed))
    }

    /// Sets the time that the worker may stay.
    pub fn set_longest(&self, longest: Duration) {
        self.longest.store(longest.as_micros() as u64, Relaxed);
    }

    /// Returns the result of the worker's visit.
    pub fn outcome(&self) -> Outcome {
        match self.outcome.load(Relaxed) {
            1 => Outcome::NoExtension,
            2 => Outcome::Swept,
            _ => Outcome::Unknown,
        }
    }

    /// Sets the result of the worker's visit.
    pub fn set_outcome(&self, outcome: Outcome) {
        let number = match outcome {
            Outcome::Unknown => 0,
            Outcome::NoExtension => 1,
            Outcome::Swept => 2,
        };
        self.outcome.store(number, Relaxed);
    }
}
