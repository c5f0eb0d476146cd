//! Implements `cache_expire` and `pgcache.expire_for`: sweeps one cache, or all caches that the caller may delete
//! from, in the caller's transaction.
//!
//! Two sessions may sweep a cache at the same time: neither waits for the other, and each row is removed once.

use std::time::{Duration, Instant};

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use super::sweep::{StepSize, Sweep};
use super::sweepable;
use crate::cache::catalog::registry::{self, Cache, Storage};
use crate::cache::memory::handle::TierHandle;
use crate::cache::memory::tier_ops as memory_cache;
use crate::cache::table::row_ops::as_owner_unless;
use crate::error::Error;
use crate::guc;
use crate::pg::catalog::privilege::{self, Privileges};
use crate::pg::catalog::{database, relation};
use crate::pg::memory;
use crate::pg::session::{self, advisory, failure, subtransaction};
use crate::pg::shmem::worker_state::{SweepState, worker_shmem};

/// Returns the state that the last sweep of a cache recorded. Returns None without shared memory, and for a temporary
/// table.
fn state_of(cache: &Cache) -> Option<&'static SweepState> {
    let shmem = worker_shmem().filter(|_| !cache.temporary)?;
    Some(shmem.sweep_state(cache.id))
}

/// Removes at most `max_rows` rows whose deadline and grace have passed. Then removes all rows beyond the cache's
/// limits, unless another session is sweeping the cache. Returns the number of expired rows that it removed.
pub fn expire(cache: &Cache, max_rows: i64) -> Result<i64, Error> {
    if cache.storage == Storage::Memory {
        return memory_cache::expire(cache, max_rows);
    }
    let needs = Privileges::SELECT.and(Privileges::UPDATE);
    let _owner = (!cache.partitioned).then(|| as_owner_unless(cache, needs));
    let alone = advisory::try_sweep(cache.relation);
    let mut sweep = Sweep::on_demand(cache, state_of(cache), max_rows, alone);
    while !sweep.is_complete() {
        sweep.step(cache, StepSize::WHOLE);
        session::check_for_interrupts();
    }
    Ok(sweep.expired())
}

/// Sweeps all caches of the database that the caller may delete from. Skips a cache that is locked against writers or
/// no longer works as a cache. Skips a cache whose sweep raises an error, with a warning. Each cache gets an equal
/// share of `max_rows`. Caches that have more expired rows get the unused shares. Returns the number of removed
/// rows.
pub fn expire_all(max_rows: i64) -> Result<i64, Error> {
    if !database::has_extension() {
        return Err(Error::OlderExtension);
    }
    let mut removed = 0;
    let mut caches = registry::all_caches();
    while removed < max_rows && !caches.is_empty() {
        let mut unfinished = Vec::new();
        for (at, &relation) in caches.iter().enumerate() {
            let left = max_rows - removed;
            if left <= 0 {
                break;
            }
            let share = (left / (caches.len() - at) as i64).max(1);
            let swept = expire_share(relation, share)?;
            removed += swept;
            if swept >= share {
                memory::push(&mut unfinished, relation);
            }
        }
        caches = unfinished;
    }
    Ok(removed)
}

/// The number of rows that are removed between two checks of the time.
const BATCH: i64 = 10_000;

/// Sweeps all caches as [`expire_all`] does, until nothing is due or the time is over. Returns the number of removed
/// rows, and whether nothing more is due. Logs a line if rows are still due.
pub fn expire_for(max_time: &Interval) -> Result<(i64, bool), Error> {
    let longest = Duration::from_micros(max_time.as_micros().clamp(0, i64::MAX.into()) as u64);
    let began = Instant::now();
    let mut removed = 0;
    loop {
        let batch = expire_all(BATCH)?;
        removed += batch;
        if batch < BATCH {
            return Ok((removed, true));
        }
        if began.elapsed() >= longest {
            failure::log(format!(
                "{removed} expired entries were removed within {} ms, and more are due: give pgcache.expire_for() more time or run it more often",
                longest.as_millis()
            ));
            return Ok((removed, false));
        }
    }
}

fn expire_share(relation: Oid, share: i64) -> Result<i64, Error> {
    privilege::accept_invalidations();
    if !privilege::has(relation, Privileges::DELETE) {
        return Ok(0);
    }
    match subtransaction::attempt(|| expire_one(relation, share)) {
        Ok(swept) => swept,
        Err(failure) if failure.cancelled => failure.raise(),
        Err(failure) => {
            failure.warn(could_not_sweep(&relation::display_name(relation)), MEND);
            Ok(0)
        }
    }
}

/// The hint of the warning about a sweep that fails.
pub const MEND: &str = "Fix the problem that the detail names; the next sweep tries again. Until then the expired rows take space, and every function treats them as absent.";

/// Returns the message of the warning about a sweep that fails.
pub fn could_not_sweep(name: &str) -> String {
    format!("could not remove expired entries of cache \"{name}\"")
}

fn expire_one(relation: Oid, max_rows: i64) -> Result<i64, Error> {
    match sweepable::open(relation) {
        Some(sweepable) if is_out_of_reach(&sweepable.cache) => Ok(0),
        Some(sweepable) => expire(&sweepable.cache, max_rows),
        None => Ok(0),
    }
}

/// Returns whether a memory cache cannot be swept: memory caches are off, the tier is missing, or the cache has no
/// slot. A cache without a slot is empty, and a sweep must not take a slot that another cache may need.
fn is_out_of_reach(cache: &Cache) -> bool {
    cache.storage == Storage::Memory && (!guc::enabled() || TierHandle::known(cache).is_none())
}
