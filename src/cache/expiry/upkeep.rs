//! Lists the caches of a database that are due for a sweep by the worker, and sweeps its memory caches.
//!
//! The worker skips a table that has not changed since a complete sweep and whose next deadline has not passed. It
//! reads the changes from Postgres' own counters, which may be a second late; the table is then due at the next visit.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use super::on_demand;
use crate::cache::catalog::registry::{self, Storage};
use crate::cache::memory::tier_ops as memory_cache;
use crate::cache::tier::{slots, walk};
use crate::guc;
use crate::pg::catalog::{database, inheritance, relation};
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::failure::Failure;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{self, lock, subtransaction};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::slot::Counter;
use crate::pg::shmem::tier::tier;
use crate::pg::shmem::worker_state::{SweepState, WorkerShmem, worker_shmem};
use crate::pg::table::storage::{self, Counted};

/// The longest delay of a cache whose sweep fails.
pub const LONGEST_DELAY: i64 = 3600 * 1_000_000;

/// A value that no table's counter has, because counters are not negative. With this stored value a table does not
/// count as at rest.
const NEVER_COUNTED: i64 = -1;

/// A table cache that is due.
#[derive(Clone)]
pub struct Due {
    pub relation: Oid,
    pub cache: CacheId,
    pub owner: Oid,
    /// The name of the cache in the log and in pg_stat_activity.
    pub name: String,
    /// The table's counter of changes before the sweep.
    pub changes: i64,
}

/// The work of the worker in one database.
#[derive(Default)]
pub struct DueCaches {
    pub tables: Vec<Due>,
    /// Memory caches with entries: the slot of each, and the deadline up to which its entries have expired.
    pub memory: Vec<(u32, Timestamp)>,
}

/// Returns the caches that are due; none if the extension was dropped after the worker started. On a standby only
/// memory caches are due, because tables are read-only there.
pub fn due(shmem: WorkerShmem) -> DueCaches {
    let mut work = DueCaches::default();
    if !database::keeps_extension() {
        return work;
    }
    if let Some(tier) = tier() {
        slots::free_gone(tier);
    }
    for relation in registry::all_caches() {
        let state = shmem.find(CacheId::of(relation));
        if state.is_some_and(is_put_off) {
            continue;
        }
        // An error concerns only the cache that raises it.
        match subtransaction::attempt(|| add(&mut work, relation, state)) {
            Ok(()) => {}
            Err(failure) if failure.cancelled || failure.locked => {}
            Err(failure) => {
                let state = shmem.sweep_state(CacheId::of(relation));
                put_off_for(&failure, state, &relation::display_name(relation));
            }
        }
        session::check_for_interrupts();
    }
    work
}

fn add(work: &mut DueCaches, relation: Oid, state: Option<&SweepState>) {
    if relation::is_view(relation) {
        work.memory.extend(due_memory(relation));
        if let Some(state) = state {
            state.failures.store(0, Relaxed);
        }
    } else if !session::in_recovery() {
        work.tables.extend(due_table(relation, state));
    }
}

/// Returns the slot of a memory cache, and the deadline up to which its entries have expired. Returns None if the cache
/// is locked or has nothing to sweep. Also trims the cache, which takes a walk only if the cache has too many entries.
fn due_memory(relation: Oid) -> Option<(u32, Timestamp)> {
    if !lock::try_relation(relation, lock::Mode::Read) {
        return None;
    }
    let cache = registry::find(relation).ok()?;
    if cache.storage != Storage::Memory {
        return None;
    }
    let limit = memory_cache::sweep_limit(&cache)?;
    // Trimming fails only without a tier, and without a tier `sweep_limit` has returned None.
    let _ = memory_cache::trim(&cache);
    Some(limit)
}

fn due_table(relation: Oid, state: Option<&SweepState>) -> Option<Due> {
    if relation::is_temporary_elsewhere(relation) {
        return None;
    }
    let counted = counted(relation);
    let changes = counted.map_or(NEVER_COUNTED, |counted| counted.changes);
    let now = clock::now();
    if let Some(state) = state
        && counted.is_some()
        && is_at_rest(state, changes, now)
    {
        state.last_sweep.store(now, Relaxed);
        return None;
    }
    Some(Due {
        relation,
        cache: CacheId::of(relation),
        owner: relation::owner(relation),
        name: relation::display_name(relation),
        changes,
    })
}

/// Returns Postgres' counters of a table, or the sum over all of its partitions. The oids of the partitions are part of
/// the sum, so that the sum changes when a partition is added or removed.
fn counted(relation: Oid) -> Option<Counted> {
    if !relation::is_partitioned(relation) {
        return storage::counted(relation);
    }
    let leaves = inheritance::leaves(relation);
    let mut all = storage::counted_of(&leaves)?;
    all.changes += leaves
        .iter()
        .map(|leaf| i64::from(leaf.to_u32()))
        .sum::<i64>();
    Some(all)
}

/// Makes the next sweep read an unchanged table. Called after a change of its settings, while the caller holds a lock
/// that keeps sweeps off until the settings are in force, and after a VACUUM that failed.
pub fn look_again(relation: Oid) {
    if let Some(state) = worker_shmem().and_then(|shmem| shmem.find(CacheId::of(relation))) {
        state.changes.store(NEVER_COUNTED, Relaxed);
    }
}

fn is_at_rest(state: &SweepState, changes: i64, now: Timestamp) -> bool {
    state.last_sweep.load(Relaxed) != 0
        && state.failures.load(Relaxed) == 0
        && state.waiting.load(Relaxed) == 0
        && state.changes.load(Relaxed) == changes
        && state.next_deadline.load(Relaxed) > now
}

/// Returns whether the sweep of a cache has failed and must not be tried again yet.
pub fn is_put_off(state: &SweepState) -> bool {
    // A moment beyond the longest delay was stored before the clock was set back, so ignore it.
    (1..=LONGEST_DELAY).contains(&(state.retry_at.load(Relaxed) - clock::now()))
}

/// Postpones the sweep of a cache whose sweep has failed. The delay doubles with each failure. Returns the number of
/// failures in a row.
pub fn put_off(state: &SweepState) -> u32 {
    let before = state.failures.fetch_add(1, Relaxed);
    let interval = guc::expire_interval().map_or(0, |interval| interval.as_micros() as i64);
    let delay = interval
        .saturating_mul(2 << before.min(20))
        .min(LONGEST_DELAY);
    state
        .retry_at
        .store(clock::now().saturating_add(delay), Relaxed);
    before + 1
}

/// Postpones the sweep of a cache as [`put_off`] does, and warns of the reason at the first failure.
pub fn put_off_for(failure: &Failure, state: &SweepState, name: &str) {
    if put_off(state) == 1 {
        failure.warn(on_demand::could_not_sweep(name), on_demand::MEND);
    }
}

/// The results that sweeps of a cache have stored.
pub struct Counters {
    pub relation: Oid,
    pub trimmed: i64,
    /// When the last sweep that covered the whole cache ended.
    pub last_sweep: Option<Timestamp>,
    /// The time in microseconds for which the row with the earliest deadline had been expired in the last sweep.
    pub lag: i64,
    pub waiting: i64,
}

/// Returns the counters of the caches of this database that were swept since the server started.
pub fn counters() -> Vec<Counters> {
    let Some(shmem) = worker_shmem() else {
        return Vec::new();
    };
    shmem
        .of_database(session::database())
        .map(|(relation, state)| Counters {
            relation,
            trimmed: trimmed(relation),
            last_sweep: Some(state.last_sweep.load(Relaxed)).filter(|&moment| moment != 0),
            lag: state.lag.load(Relaxed),
            waiting: state.waiting.load(Relaxed),
        })
        .collect()
}

fn trimmed(relation: Oid) -> i64 {
    tier()
        .and_then(|tier| Some(tier.slot(slots::find(tier, CacheId::of(relation))?)))
        .map_or(0, |slot| slot.counter(Counter::Trimmed) as i64)
}

/// Closes the holes that removed entries have left in the tier, for at most this long. Otherwise only a write would
/// close holes, and only in the partitions that it takes pages from. A large value would then evict entries although
/// the tier has room.
pub fn compact_tier(longest: Duration) {
    let Some(tier) = tier().filter(|_| !fault::on(Fault::HolesStay)) else {
        return;
    };
    let began = Instant::now();
    for partition in 0..tier.partitions() {
        if walk::compact_partition(tier, partition, || began.elapsed() < longest) {
            return;
        }
        session::check_for_interrupts();
    }
}

/// Removes expired entries of memory caches, partition by partition, for at most this long. The next call continues
/// where this call ended.
pub fn expire_memory(shmem: WorkerShmem, limits: &[(u32, Timestamp)], longest: Duration) {
    let Some(tier) = tier().filter(|_| !limits.is_empty()) else {
        return;
    };
    let began = Instant::now();
    for _ in 0..tier.partitions() {
        let partition = shmem.partition().fetch_add(1, SeqCst) % tier.partitions();
        walk::expire_partition(tier, partition, limits);
        session::check_for_interrupts();
        if began.elapsed() > longest {
            return;
        }
    }
}
