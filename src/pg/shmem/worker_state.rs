//! What sweepers and writers leave for each other in shared memory, and how they wake each other.
//!
//! Not the hot tier, and nothing is served from here: all of it may be lost or out of date at no
//! cost but work done twice. That is the rule: nobody decides about an entry by what stands here.
//! So it needs no lock. Whoever sweeps a cache is alone with its [`SweepState`]
//! (`advisory::try_sweep`); writers only add to its sums and request a VACUUM. Two caches that
//! fight for one state may at worst overwrite each other.
//!
//! It exists with `shared_preload_libraries` whatever `pgcache.hot_size` is; its bytes are taken
//! from `hot_size` where there is one.

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

/// One sweep state for so many bytes of `hot_size`, within these limits.
const BYTES_PER_STATE: usize = 32 * 1024;
const MIN_STATES: usize = 64;
const MAX_STATES: usize = 4096;
/// Databases that are visited at the same time.
pub const VISITS: usize = 3;

/// What the launcher and the worker of one visit tell each other.
#[repr(C)]
pub struct VisitState {
    pub database: AtomicU32,
    outcome: AtomicU32,
    /// When the step of a sweep that is under way began; 0: none is.
    pub step_began: AtomicI64,
    /// The cache of that step.
    pub cache: AtomicCacheId,
    /// The worker's process, while it answers requests for a VACUUM; else 0.
    worker: AtomicU32,
    /// The visit only answers requests for a VACUUM; it sweeps nothing.
    pub only_vacuums: AtomicBool,
    /// Microseconds until the database is to be visited again.
    longest: AtomicU64,
}

/// What a worker found in its database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The worker ended before it knew.
    Unknown,
    /// The extension is not there.
    NoExtension,
    Swept,
}

#[repr(C)]
struct Head {
    /// Grows whenever an extension is made or updated in any database.
    extension_generation: AtomicU64,
    /// 1: a transaction that has made or updated an extension was prepared.
    extension_prepared: AtomicU32,
    /// Grows whenever a writer requests a VACUUM.
    vacuum_requests: AtomicU64,
    /// The partition of the tier at which the next sweep of memory caches begins.
    partition: AtomicU32,
    /// The launcher's process; 0: there has been none.
    launcher: AtomicU32,
    /// A database is due, but all visits or all workers are taken.
    place_wanted: AtomicBool,
    visits: [VisitState; VISITS],
}

/// The worker's shared memory of this server.
#[derive(Clone, Copy)]
pub struct WorkerShmem {
    head: &'static Head,
    states: &'static [SweepState],
}

thread_local! {
    // Set by the postmaster before it forks; every backend inherits it.
    static WORKER_SHMEM: Cell<Option<WorkerShmem>> = const { Cell::new(None) };
}

/// The worker's shared memory, if this server has it.
pub fn worker_shmem() -> Option<WorkerShmem> {
    WORKER_SHMEM.get()
}

fn states(hot_size: usize) -> usize {
    match hot_size {
        0 => MAX_STATES / 2,
        _ => (hot_size / BYTES_PER_STATE).clamp(MIN_STATES, MAX_STATES),
    }
}

/// Bytes that this takes on a server with this `pgcache.hot_size` (in bytes, too).
pub fn bytes(hot_size: usize) -> usize {
    64 + size_of::<Head>().next_multiple_of(64) + states(hot_size) * size_of::<SweepState>()
}

/// Asks for the memory; called from the request hook.
pub fn request(hot_size: usize) {
    // SAFETY: the caller is the request hook, the one place where this is allowed.
    unsafe { pg_sys::RequestAddinShmemSpace(bytes(hot_size)) };
}

/// Finds the memory or makes it; called from the startup hook.
pub fn attach(hot_size: usize) {
    let mut found = false;
    // SAFETY: `bytes` bytes were requested. The head and the states lie one after the other at
    // aligned offsets inside them; they are atomics, of which any bit pattern is valid, and zeroed
    // by the first to come, which the lock decides.
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

/// Notes that an extension was made or updated: a database that had none of ours may have it now.
pub fn extension_changed() {
    if let Some(shmem) = worker_shmem() {
        shmem.head.extension_generation.fetch_add(1, Relaxed);
    }
}

/// Notes the same of a transaction that is prepared: whoever decides it does not know what it did.
pub fn extension_prepared() {
    if let Some(shmem) = worker_shmem() {
        shmem.head.extension_prepared.store(1, Relaxed);
    }
}

/// A prepared transaction was decided. If any has made or updated an extension since the server's start,
/// it may be this one.
pub fn prepared_ended() {
    if worker_shmem().is_some_and(|shmem| shmem.head.extension_prepared.load(Relaxed) != 0) {
        extension_changed();
    }
}

impl WorkerShmem {
    /// Another number means that an extension was made or updated in between, in any database.
    pub fn extension_generation(&self) -> u64 {
        self.head.extension_generation.load(Relaxed)
    }

    /// The partition of the tier at which the next sweep of memory caches begins.
    pub fn partition(&self) -> &'static AtomicU32 {
        &self.head.partition
    }

    /// The state of the visit at a place, below [`VISITS`].
    pub fn visit(&self, place: usize) -> &'static VisitState {
        &self.head.visits[place % VISITS]
    }

    /// How many requests for a VACUUM there have been.
    pub fn vacuum_requests(&self) -> u64 {
        self.head.vacuum_requests.load(Acquire)
    }

    /// This process is the launcher.
    pub fn set_launcher(&self) {
        self.head.launcher.store(background::own_pid(), Relaxed);
    }

    /// Requests a VACUUM of a cache of which so much has died that it cannot wait for the next
    /// sweep. Wakes the worker that is in its database; where there is none, the launcher, which a
    /// worker's end wakes, too.
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

    /// Databases in which a VACUUM is requested, once for each cache.
    pub fn databases_to_vacuum(&self) -> impl Iterator<Item = Oid> {
        self.states
            .iter()
            .filter(|state| state.vacuum_requested.load(Relaxed) != 0)
            .filter_map(SweepState::database)
    }

    /// Says whether a database waits for a visit to end, or for a worker.
    pub fn set_place_wanted(&self, wanted: bool) {
        self.head.place_wanted.store(wanted, Relaxed);
    }

    /// Whether a visit that could end now should, because a database waits for its place.
    pub fn is_place_wanted(&self) -> bool {
        self.head.place_wanted.load(Relaxed)
    }

    /// The state of a cache, if it has one.
    pub fn find(&self, cache: CacheId) -> Option<&'static SweepState> {
        self.places(cache)
            .map_while(|state| Some((state.cache.load(Relaxed)?, state)))
            .find_map(|(found, state)| (found == cache).then_some(state))
    }

    /// All states in the order in which a cache looks for its own. None that was taken is ever free
    /// again, so what comes behind a free one is not the cache's own.
    fn places(&self, cache: CacheId) -> impl Iterator<Item = &'static SweepState> {
        let first = (cache.mixed() >> 32) as usize % self.states.len();
        let (before, from) = self.states.split_at(first);
        from.iter().chain(before)
    }

    /// The states of a database's caches, by relation.
    pub fn of_database(&self, database: Oid) -> impl Iterator<Item = (Oid, &'static SweepState)> {
        self.states.iter().filter_map(move |state| {
            let cache = state.cache.load(Relaxed)?;
            (cache.database() == database).then_some((cache.relation(), state))
        })
    }

    /// The state of a cache for its sweeper: its own, a free one, or one that it takes from another
    /// cache. With more caches than states each cache has one place to fight for: if the oldest
    /// state were taken instead, every cache would lose its state in turn.
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

    /// The state of a cache for a writer, who takes no other cache's, and looks at a few places
    /// only. A free one is taken if `may_have_one` says so.
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
    /// This process is the worker, and is to be woken by requests for a VACUUM.
    pub fn begin_answering(&self) {
        self.worker.store(background::own_pid(), Relaxed);
    }

    /// The worker answers no more requests, or is gone.
    pub fn end_answering(&self) {
        self.worker.store(0, Relaxed);
    }

    /// How long the worker may stay.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Relaxed))
    }

    /// Says how long the worker may stay; kept in microseconds.
    pub fn set_longest(&self, longest: Duration) {
        self.longest.store(longest.as_micros() as u64, Relaxed);
    }

    /// What the worker found.
    pub fn outcome(&self) -> Outcome {
        match self.outcome.load(Relaxed) {
            1 => Outcome::NoExtension,
            2 => Outcome::Swept,
            _ => Outcome::Unknown,
        }
    }

    /// Says what the worker found.
    pub fn set_outcome(&self, outcome: Outcome) {
        let number = match outcome {
            Outcome::Unknown => 0,
            Outcome::NoExtension => 1,
            Outcome::Swept => 2,
        };
        self.outcome.store(number, Relaxed);
    }
}
