//! The board: what sweepers and writers leave for each other in shared memory, and how they wake each other.
//!
//! Not the hot tier and no part of what is served from it: everything here may be lost or be old at
//! no cost but work done twice. That is the rule: nobody decides about an entry by the board. So it
//! needs no lock; whoever sweeps a cache is alone with its record (`advisory::try_sweep`), writers only add to its
//! sums and raise its alarm, and two caches that fight for one record may at worst write over each other.
//!
//! It exists with `shared_preload_libraries` whatever `pgcache.hot_size` is; its bytes are taken from
//! `hot_size` where there is one.

use std::cell::Cell;
use std::mem::size_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use std::time::Duration;

use pgrx::pg_sys::{self, Oid};

pub use crate::pg::shmem::sweep_state::Record;
use crate::pg::version::ADDIN_SHMEM_INIT_LOCK;
use crate::pg::worker::background;

/// One record for so many bytes of `hot_size`, within these limits.
const BYTES_PER_RECORD: usize = 32 * 1024;
const MIN_RECORDS: usize = 64;
const MAX_RECORDS: usize = 4096;
/// Databases that are visited at the same time.
pub const VISITS: usize = 3;

/// A visit to a database: written by the launcher, answered by the worker.
#[repr(C)]
pub struct Visit {
    pub database: AtomicU32,
    pub outcome: AtomicU32,
    /// When the step of a sweep that is under way began; 0: none is.
    pub step_began: AtomicI64,
    /// The cache of that step, as its record names it.
    pub owner: AtomicU64,
    /// The worker's process, while it is there.
    worker: AtomicU32,
    /// It comes because of an alarm, and sweeps nothing.
    pub alarmed: AtomicBool,
    /// Microseconds until the database is to be visited again.
    longest: AtomicU64,
}

/// What a worker found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has not come so far as to say.
    Unknown,
    /// The extension is not there.
    NoExtension,
    Swept,
}

#[repr(C)]
struct Head {
    /// Grows whenever an extension is made or updated somewhere.
    news: AtomicU64,
    /// Grows whenever an alarm is raised.
    alarms: AtomicU64,
    /// The partition of the tier at which the next sweep of memory caches begins.
    partition: AtomicU32,
    /// The launcher's process; 0: there has been none.
    launcher: AtomicU32,
    /// A database is due, and there is no place for a visit, or no worker.
    awaited: AtomicBool,
    visits: [Visit; VISITS],
}

/// The board of this server.
#[derive(Clone, Copy)]
pub struct Board {
    head: &'static Head,
    records: &'static [Record],
}

thread_local! {
    // Set by the postmaster before it forks; every backend inherits it.
    static BOARD: Cell<Option<Board>> = const { Cell::new(None) };
}

/// The board, if this server has one.
pub fn board() -> Option<Board> {
    BOARD.get()
}

fn records(hot_size: usize) -> usize {
    match hot_size {
        0 => MAX_RECORDS / 2,
        _ => (hot_size / BYTES_PER_RECORD).clamp(MIN_RECORDS, MAX_RECORDS),
    }
}

/// Bytes of the board of a server with this `pgcache.hot_size`.
pub fn bytes(hot_size: usize) -> usize {
    64 + size_of::<Head>().next_multiple_of(64) + records(hot_size) * size_of::<Record>()
}

/// Asks for the memory; called from the request hook.
pub fn request(hot_size: usize) {
    // SAFETY: the caller is the request hook, where this is allowed.
    unsafe { pg_sys::RequestAddinShmemSpace(bytes(hot_size)) };
}

/// Finds the memory or makes it; called from the startup hook.
pub fn attach(hot_size: usize) {
    let mut found = false;
    // SAFETY: `bytes` bytes were requested. Head and records lie behind each other at aligned offsets
    // inside them; they are atomics, of which any bit pattern is valid, and zeroed by the first to
    // come, which the lock tells.
    unsafe {
        let lock = &raw mut (*pg_sys::MainLWLockArray.add(ADDIN_SHMEM_INIT_LOCK)).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let memory: *mut u8 =
            pg_sys::ShmemInitStruct(c"pgcache board".as_ptr(), bytes(hot_size), &mut found).cast();
        if !found {
            memory.write_bytes(0, bytes(hot_size));
        }
        let base = memory.add(memory.align_offset(64));
        let records_at = size_of::<Head>().next_multiple_of(64);
        BOARD.set(Some(Board {
            head: &*base.cast(),
            records: std::slice::from_raw_parts(base.add(records_at).cast(), records(hot_size)),
        }));
        pg_sys::LWLockRelease(lock);
    }
}

/// Says that an extension was made or updated: a database that had none of ours may have it now.
pub fn tell_news() {
    if let Some(board) = board() {
        board.head.news.fetch_add(1, Relaxed);
    }
}

impl Board {
    pub fn news(&self) -> u64 {
        self.head.news.load(Relaxed)
    }

    pub fn partition(&self) -> &'static AtomicU32 {
        &self.head.partition
    }

    pub fn visit(&self, place: usize) -> &'static Visit {
        &self.head.visits[place % VISITS]
    }

    /// The alarms that were raised so far.
    pub fn alarms(&self) -> u64 {
        self.head.alarms.load(Acquire)
    }

    /// This process is the launcher.
    pub fn launch(&self) {
        self.head.launcher.store(background::own_pid(), Relaxed);
    }

    /// Says of a cache that so much of it has died that it cannot wait for the next sweep. Wakes the worker
    /// that is in its database, else the launcher, which is woken by a worker's end, too.
    pub fn raise_alarm(&self, record: &Record) {
        if record.alarm.swap(1, Relaxed) == 1 {
            return;
        }
        self.head.alarms.fetch_add(1, Release);
        let database = record.database().to_u32();
        let here = |visit: &&Visit| visit.database.load(Relaxed) == database;
        let worker = self
            .head
            .visits
            .iter()
            .filter(here)
            .map(|visit| visit.worker.load(Relaxed))
            .find(|&worker| worker != 0);
        background::wake(worker.unwrap_or(self.head.launcher.load(Relaxed)));
    }

    /// Databases in which there are alarms.
    pub fn alarmed(&self) -> impl Iterator<Item = Oid> {
        self.records
            .iter()
            .filter(|record| record.alarm.load(Relaxed) != 0)
            .map(Record::database)
    }

    /// A database waits for a place, or for a worker.
    pub fn await_place(&self, waits: bool) {
        self.head.awaited.store(waits, Relaxed);
    }

    /// Whether who stays is to make room.
    pub fn is_awaited(&self) -> bool {
        self.head.awaited.load(Relaxed)
    }

    /// The record of a cache, if it has one.
    pub fn find(&self, owner: u64) -> Option<&'static Record> {
        self.places(owner)
            .map_while(|record| match record.owner.load(Relaxed) {
                0 => None,
                found => Some((found, record)),
            })
            .find_map(|(found, record)| (found == owner).then_some(record))
    }

    /// All records in the order in which a cache looks for a place. None that was taken is ever free again,
    /// so what comes behind a free one is not the cache's own.
    fn places(&self, owner: u64) -> impl Iterator<Item = &'static Record> {
        let first = (owner.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % self.records.len();
        let (before, from) = self.records.split_at(first);
        from.iter().chain(before)
    }

    /// The records of a database's caches, by relation.
    pub fn of_database(&self, database: Oid) -> impl Iterator<Item = (Oid, &'static Record)> {
        self.records.iter().filter_map(move |record| {
            let owner = record.owner.load(Relaxed);
            let ours = owner >> 32 == u64::from(database.to_u32());
            ours.then_some((Oid::from_u32(owner as u32), record))
        })
    }

    /// The record of a cache: its own, a free one, or one that another cache loses. With more caches than
    /// records each has a place of its own to fight for: taking the oldest would take each one in turn.
    pub fn record(&self, owner: u64) -> &'static Record {
        let own = self.places(owner).find(|record| record.claim(owner));
        own.unwrap_or_else(|| {
            let place = self.places(owner).next().unwrap_or(&self.records[0]);
            place.reset();
            place.owner.store(owner, Relaxed);
            place
        })
    }

    /// The same for a writer, who takes nobody's record, and does not look for long.
    pub fn own_or_free(
        &self,
        owner: u64,
        may_have_one: impl FnOnce() -> bool,
    ) -> Option<&'static Record> {
        const LOOKS: usize = 16;
        let near = || self.places(owner).take(LOOKS);
        let own = near().find(|record| record.owner.load(Relaxed) == owner);
        own.or_else(|| may_have_one().then(|| near().find(|record| record.claim(owner)))?)
    }
}

impl Visit {
    /// This process is the worker, and wants to be woken by alarms.
    pub fn begin(&self) {
        self.worker.store(background::own_pid(), Relaxed);
    }

    /// The worker does not look at alarms any more, or is gone.
    pub fn end(&self) {
        self.worker.store(0, Relaxed);
    }

    /// How long it may stay.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Relaxed))
    }

    pub fn set_longest(&self, longest: Duration) {
        self.longest.store(longest.as_micros() as u64, Relaxed);
    }

    pub fn outcome(&self) -> Outcome {
        match self.outcome.load(Relaxed) {
            1 => Outcome::NoExtension,
            2 => Outcome::Swept,
            _ => Outcome::Unknown,
        }
    }

    pub fn tell(&self, outcome: Outcome) {
        let number = match outcome {
            Outcome::Unknown => 0,
            Outcome::NoExtension => 1,
            Outcome::Swept => 2,
        };
        self.outcome.store(number, Relaxed);
    }
}
