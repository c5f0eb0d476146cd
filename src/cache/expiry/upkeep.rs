//! What the worker asks about the caches of a database: which of them are due, and its sweep of those
//! in memory.
//!
//! A table in which nothing has changed since a whole sweep, and whose next deadline has not come, is not
//! read again. Postgres' own counters tell that; they may be a second late, then it is due next time.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Storage};
use crate::cache::memory::ops as memory_cache;
use crate::cache::tier::slots::{self, owner_of};
use crate::cache::tier::walk;
use crate::guc;
use crate::pg::catalog::relation;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::{self, lock};
use crate::pg::shmem::slot::Figure;
use crate::pg::shmem::tier::tier;
use crate::pg::shmem::worker_state::{Board, Record, board};
use crate::pg::table::storage;

/// The longest time that a failing cache is put off.
pub const LONGEST_DELAY: i64 = 3600 * 1_000_000;

/// No counter of changes is negative: a table of which this is noted is not at rest.
const NEVER_COUNTED: i64 = -1;

/// A table cache that is due.
#[derive(Clone)]
pub struct Due {
    pub relation: Oid,
    pub owner: u64,
    /// As the log and pg_stat_activity name it.
    pub name: String,
    /// The table's counter of changes before the sweep.
    pub changes: i64,
}

/// What there is to do in a database.
#[derive(Default)]
pub struct Work {
    pub tables: Vec<Due>,
    /// Memory caches with entries: slot, and the deadline up to which its entries have expired.
    pub memory: Vec<(u32, Timestamp)>,
}

/// Looks for what is due. On a standby tables are read only, and memory caches are not.
pub fn due() -> Work {
    let mut work = Work::default();
    if let Some(tier) = tier() {
        slots::free_gone(tier);
    }
    for relation in registry::all_caches() {
        if !add_memory(&mut work, relation) && !session::in_recovery() {
            work.tables.extend(due_table(relation));
        }
        session::check_for_interrupts();
    }
    work
}

/// Whether it is a memory cache; trims it, too, which takes a walk only when it has too many entries.
fn add_memory(work: &mut Work, relation: Oid) -> bool {
    if !relation::is_view(relation) {
        return false;
    }
    if lock::try_relation(relation, lock::Mode::Read)
        && let Ok(cache) = registry::find(relation)
        && cache.storage == Storage::Memory
        && let Some(limit) = memory_cache::sweep_limit(&cache)
    {
        work.memory.push(limit);
        // It fails only where there is no tier, and there no limit either.
        let _ = memory_cache::trim(&cache);
    }
    true
}

fn due_table(relation: Oid) -> Option<Due> {
    if relation::is_temporary_elsewhere(relation) {
        return None;
    }
    let owner = owner_of(relation);
    let counted = storage::counted(relation);
    let changes = counted.map_or(NEVER_COUNTED, |counted| counted.changes);
    let now = clock::now();
    if let Some(record) = board().and_then(|board| board.find(owner)) {
        if is_put_off(record) {
            return None;
        }
        if counted.is_some() && is_at_rest(record, changes, now) {
            record.last_sweep.store(now, Relaxed);
            return None;
        }
    }
    Some(Due {
        relation,
        owner,
        name: relation::display_name(relation),
        changes,
    })
}

/// Lets the next sweep read a table in which nothing has changed, because its settings have. The caller
/// holds a lock on it that keeps sweeps off until they count.
pub fn look_again(relation: Oid) {
    if let Some(record) = board().and_then(|board| board.find(owner_of(relation))) {
        record.changes.store(NEVER_COUNTED, Relaxed);
    }
}

fn is_at_rest(record: &Record, changes: i64, now: Timestamp) -> bool {
    record.last_sweep.load(Relaxed) != 0
        && record.failures.load(Relaxed) == 0
        && record.waiting.load(Relaxed) == 0
        && record.changes.load(Relaxed) == changes
        && record.next_deadline.load(Relaxed) > now
}

/// Whether a cache has failed, and is not to be tried yet.
pub fn is_put_off(record: &Record) -> bool {
    // A moment farther away than the longest delay was written before the clock was set back.
    (1..=LONGEST_DELAY).contains(&(record.retry_at.load(Relaxed) - clock::now()))
}

/// Puts a cache whose sweep has failed off, each time for twice as long. How many errors there were in a row.
pub fn put_off(record: &Record) -> u32 {
    let before = record.failures.fetch_add(1, Relaxed);
    let interval = guc::expire_interval().map_or(0, |interval| interval.as_micros() as i64);
    let delay = interval
        .saturating_mul(2 << before.min(20))
        .min(LONGEST_DELAY);
    record
        .retry_at
        .store(clock::now().saturating_add(delay), Relaxed);
    before + 1
}

/// What sweeps of a cache have written down.
pub struct Figures {
    pub relation: Oid,
    pub trimmed: i64,
    /// The last sweep that met the whole cache.
    pub last_sweep: Option<Timestamp>,
    /// Microseconds that the longest waiting row of the last sweep had been expired for.
    pub lag: i64,
    pub waiting: i64,
}

/// The figures of the caches of this database that were swept since the server started.
pub fn figures() -> Vec<Figures> {
    let Some(board) = board() else {
        return Vec::new();
    };
    board
        .of_database(session::database())
        .map(|(relation, record)| Figures {
            relation,
            trimmed: trimmed(relation),
            last_sweep: Some(record.last_sweep.load(Relaxed)).filter(|&moment| moment != 0),
            lag: record.lag.load(Relaxed),
            waiting: record.waiting.load(Relaxed),
        })
        .collect()
}

fn trimmed(relation: Oid) -> i64 {
    tier()
        .and_then(|tier| Some(tier.slot(slots::find(tier, owner_of(relation))?)))
        .map_or(0, |slot| slot.figure(Figure::Trimmed) as i64)
}

/// Removes expired entries of memory caches, partition by partition, for at most this long; the next
/// call goes on where this one ended.
pub fn expire_memory(board: Board, limits: &[(u32, Timestamp)], longest: Duration) {
    let Some(tier) = tier().filter(|_| !limits.is_empty()) else {
        return;
    };
    let began = Instant::now();
    for _ in 0..tier.partitions() {
        let partition = board.partition().fetch_add(1, SeqCst) % tier.partitions();
        walk::expire_partition(tier, partition, limits);
        session::check_for_interrupts();
        if began.elapsed() > longest {
            return;
        }
    }
}
