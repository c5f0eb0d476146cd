//! Decides when a cache's table, or its TOAST table, is worth a VACUUM, so that dead rows do not fill the disk.
//!
//! Autovacuum looks at a table once a minute, and in a minute a busy cache replaces its rows several times. So the
//! worker vacuums as soon as the dead rows are a fifth of the live ones. This keeps a table below twice its fresh
//! size, even though it can grow while it is vacuumed.
//!
//! Large values need more. Values of 100 kB, replaced some hundred times a second, leave as many dead bytes between
//! two visits of the worker as all live data take, and a table does not shrink again by itself. So writers count the
//! bytes that they leave dead and request a VACUUM, for which the worker comes at once. The count is a hint: it
//! includes changes that are rolled back, and only the time of a VACUUM depends on it.

use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::Oid;

use super::sweepable;
use super::upkeep::{self, Due};
use crate::cache::catalog::registry;
use crate::cache::model::expiring::Expiring;
use crate::pg::catalog::{inheritance, relation};
use crate::pg::events::DeadBytes;
use crate::pg::session::{clock, lock};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::worker_state::{SweepState, worker_shmem};
use crate::pg::table::storage::{self, Counted};

/// The threshold of autovacuum. A table below it is at most some pages too large.
const MIN_DEAD_ROWS: i64 = 50;
/// Dead rows that are worth a VACUUM, as a fraction of the live ones.
const DEAD_ROW_RATIO: i64 = 5;

/// Dead bytes that request no VACUUM before the next sweep, whatever the table's size.
const MIN_DEAD_BYTES: u64 = 2 << 20;
/// Dead bytes that are worth a VACUUM, as a fraction of the live ones. For a table the live bytes are its size, free
/// space included; for a TOAST table they are those of its chunks.
const DEAD_BYTES_RATIO: u64 = 8;

/// Microseconds without a request for a VACUUM after which a table counts as at rest.
pub const QUIET: i64 = 2_000_000;

/// Indexes of the arrays in the state: tables with the rows, and TOAST tables.
const OWN: usize = 0;
const TOAST: usize = 1;

/// A table that is worth a VACUUM, and its index in the state, `OWN` or `TOAST`.
pub struct VacuumNeed {
    cache: Oid,
    pub table: Oid,
    pub place: usize,
    /// Whether the file may be shortened, see `may_shorten`.
    pub shorten: bool,
}

/// Counts the bytes that a write has left dead. A sweep does not count, because VACUUM follows it anyway.
pub fn note_dead(relation: Oid, dead: DeadBytes) {
    let Some(shmem) = worker_shmem().filter(|_| !Expiring::is_on()) else {
        return;
    };
    let shared = || !relation::is_temporary(relation);
    let Some(state) = shmem.own_or_free(CacheId::of(relation), shared) else {
        return;
    };
    for (place, bytes) in [dead.rows as u64, dead.toast as u64]
        .into_iter()
        .enumerate()
    {
        if bytes == 0 {
            continue;
        }
        let died = state.dead_bytes[place].fetch_add(bytes, Relaxed) + bytes;
        if died < dead_bytes_limit(state, place) {
            continue;
        }
        match can_be_vacuumed(relation) {
            true => shmem.request_vacuum(state),
            false => forget(state),
        }
    }
}

/// Returns whether a worker could vacuum a table: it must be a cache, not another table with a pgcache trigger.
fn can_be_vacuumed(relation: Oid) -> bool {
    registry::find(relation).is_ok()
}

fn dead_bytes_limit(state: &SweepState, place: usize) -> u64 {
    state.vacuum_at[place].load(Relaxed).max(MIN_DEAD_BYTES)
}

/// Returns the cache for which a VACUUM was requested; None if it is not a cache any more, or cannot be swept now.
pub fn answer(relation: Oid, state: &SweepState) -> Option<Due> {
    sweepable::open(relation)?;
    state.answered_at.store(clock::now(), Relaxed);
    Some(Due {
        relation,
        cache: CacheId::of(relation),
        owner: relation::owner(relation),
        name: relation::display_name(relation),
        changes: 0,
    })
}

/// Returns the tables of a cache that are worth a VACUUM now. Rows that the last one could not remove, because an old
/// snapshot still sees them, do not count again until as many have been added.
pub fn tables_to_vacuum(cache: Oid, state: &SweepState) -> Vec<VacuumNeed> {
    tables(cache, state, |tables, place| {
        needs_vacuum(tables, place, state)
    })
}

/// Returns the tables of a cache at rest whose free space at the end can be returned to the system.
pub fn tables_to_shorten(cache: Oid, state: &SweepState) -> Vec<VacuumNeed> {
    let mut need = tables(cache, state, |_, _| true);
    need.retain(|need| need.shorten);
    need
}

fn tables(
    cache: Oid,
    state: &SweepState,
    wanted: impl Fn(&[Oid], usize) -> bool,
) -> Vec<VacuumNeed> {
    let mut need = Vec::new();
    for place in [OWN, TOAST] {
        let all = tables_at(cache, place);
        if wanted(&all, place) {
            let tables = all.iter().filter(|&&table| is_worth_it(table, &all));
            need.extend(tables.filter_map(|&table| open(cache, table, place, state)));
        }
    }
    need
}

/// Returns the tables with a cache's rows, or those with their long values. Partitions are not locked, so one may be
/// dropped when it is read.
fn tables_at(cache: Oid, place: usize) -> Vec<Oid> {
    let tables = match relation::is_partitioned(cache) {
        true => inheritance::leaves(cache),
        false => vec![cache],
    };
    match place {
        TOAST => tables
            .into_iter()
            .filter_map(storage::toast_table)
            .collect(),
        _ => tables,
    }
}

/// Returns whether a table is worth a VACUUM: of several partitions, those with many dead rows.
fn is_worth_it(table: Oid, all: &[Oid]) -> bool {
    all.len() <= 1 || storage::counted(table).is_some_and(|counted| has_died(counted, 0))
}

fn open(cache: Oid, table: Oid, place: usize, state: &SweepState) -> Option<VacuumNeed> {
    if !lock::try_relation(table, lock::Mode::Verify) {
        // Another VACUUM or an index build holds the lock, so Postgres would skip the worker's VACUUM with a warning.
        // The table is read again once they have ended, even if it does not change any more.
        if needs_vacuum(&tables_at(cache, place), place, state) {
            upkeep::look_again(cache);
        }
        state.dead_bytes[place].store(0, Relaxed);
        return None;
    }
    relation::is_there(table).then(|| VacuumNeed {
        cache,
        table,
        place,
        shorten: may_shorten(table, state),
    })
}

/// Returns whether VACUUM may shorten the file. To shorten it, VACUUM waits up to five seconds for a moment without
/// writers. If rows die quickly, more of them die in that time than shortening gains.
fn may_shorten(table: Oid, state: &SweepState) -> bool {
    let quiet = clock::now() - state.answered_at.load(Relaxed);
    !(0..QUIET).contains(&quiet) && lock::try_relation(table, lock::Mode::Define)
}

fn needs_vacuum(tables: &[Oid], place: usize, state: &SweepState) -> bool {
    let left = state.unremoved_rows[place].load(Relaxed);
    state.dead_bytes[place].load(Relaxed) >= dead_bytes_limit(state, place)
        || storage::counted_of(tables).is_some_and(|counted| has_died(counted, left))
}

fn has_died(counted: Counted, left: i64) -> bool {
    let new = counted.dead - left;
    new > MIN_DEAD_ROWS && new * DEAD_ROW_RATIO > counted.live + left
}

/// Resets the count when a VACUUM begins: later dead bytes are for the next one.
pub fn begin(need: &VacuumNeed, state: &SweepState) {
    state.dead_bytes[need.place].store(0, Relaxed);
}

/// Stores how many rows a VACUUM has left, and how large the table is.
pub fn note(need: &VacuumNeed, state: &SweepState) {
    let counted = storage::counted_of(&tables_at(need.cache, need.place));
    let dead = counted.map_or(0, |counted| counted.dead);
    state.unremoved_rows[need.place].store(dead, Relaxed);
    if relation::is_partitioned(need.cache) || !lock::try_relation(need.table, lock::Mode::Read) {
        return; // partitions count no dead bytes: see the trigger of a row
    }
    let size = storage::bytes(need.table);
    // Rows that an old snapshot still sees count as live: otherwise ever more of them would be read again for the
    // same gain, as long as that snapshot lives.
    let held = match (need.place, counted) {
        (TOAST, Some(counted)) => {
            size.min((counted.live + counted.dead).max(0) as u64 * storage::TOAST_CHUNK)
        }
        _ => size,
    };
    state.vacuum_at[need.place].store(held / DEAD_BYTES_RATIO, Relaxed);
}

/// Resets the counts when no worker can vacuum the cache now: the next request comes when as much more has died.
pub fn forget(state: &SweepState) {
    for died in &state.dead_bytes {
        died.store(0, Relaxed);
    }
}
