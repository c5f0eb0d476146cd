//! Decides when VACUUM pays for a cache's table or its TOAST table, so that dead rows do not fill the disk.
//!
//! Autovacuum checks a table once a minute, and in a minute a busy cache replaces its rows several times. So the worker
//! vacuums as soon as the table has a fifth as many dead rows as live rows. This keeps a table below twice its fresh
//! size, even though it can grow while it is vacuumed.
//!
//! Large values need VACUUM earlier. Values of 100 kB that are replaced some hundred times a second leave as many dead
//! bytes between two visits of the worker as all live data take, and a table does not shrink by itself. So writers
//! count the bytes that they leave dead, and request a VACUUM, which the worker runs at once. The count is a hint: it
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

/// The threshold of autovacuum. A table with fewer dead rows is at most some pages too large.
const MIN_DEAD_ROWS: i64 = 50;
/// VACUUM pays if dead rows times this number exceed the live rows.
const DEAD_ROW_RATIO: i64 = 5;

/// The number of dead bytes below which no VACUUM is requested before the next sweep, whatever the size of the table.
const MIN_DEAD_BYTES: u64 = 2 << 20;
/// VACUUM pays if dead bytes times this number exceed the live bytes. The live bytes of a table are its size, free
/// space included; the live bytes of a TOAST table are the bytes of its chunks.
const DEAD_BYTES_RATIO: u64 = 8;

/// After this many microseconds without a request for a VACUUM, a table counts as at rest.
pub const QUIET: i64 = 2_000_000;

/// The index of the tables with the rows in the arrays of the state.
const OWN: usize = 0;
/// The index of the TOAST tables in the arrays of the state.
const TOAST: usize = 1;

/// A table that needs a VACUUM, and its index in the state, `OWN` or `TOAST`.
pub struct VacuumNeed {
    cache: Oid,
    pub table: Oid,
    pub place: usize,
    /// Whether VACUUM may shorten the file; see `may_shorten`.
    pub shorten: bool,
}

/// Counts the bytes that a write has left dead. Bytes of a sweep are not counted, because a VACUUM follows the sweep
/// anyway.
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

/// Returns whether a worker could vacuum a table. The table must be a cache, and not another table with a trigger of
/// pgcache.
fn can_be_vacuumed(relation: Oid) -> bool {
    registry::find(relation).is_ok()
}

fn dead_bytes_limit(state: &SweepState, place: usize) -> u64 {
    state.vacuum_at[place].load(Relaxed).max(MIN_DEAD_BYTES)
}

/// Records that the worker answers a request for a VACUUM, and returns the cache. Returns None if the relation is no
/// longer a cache, or cannot be swept now.
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

/// Returns the tables of a cache that need a VACUUM now. An old snapshot may have kept the last VACUUM from removing
/// some dead rows. These rows do not count again until as many rows have been added.
pub fn tables_to_vacuum(cache: Oid, state: &SweepState) -> Vec<VacuumNeed> {
    tables(cache, state, |tables, place| {
        needs_vacuum(tables, place, state)
    })
}

/// Returns the tables of a cache at rest whose free space at the end of the file can be returned to the operating
/// system.
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

/// Returns the tables with a cache's rows, or their TOAST tables. Partitions are not locked, so a partition may have
/// been dropped when a caller reads it.
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

/// Returns whether VACUUM pays for a table. For a single table it always does; of several partitions, only for a
/// partition with many dead rows.
fn is_worth_it(table: Oid, all: &[Oid]) -> bool {
    all.len() <= 1 || storage::counted(table).is_some_and(|counted| has_died(counted, 0))
}

fn open(cache: Oid, table: Oid, place: usize, state: &SweepState) -> Option<VacuumNeed> {
    if !lock::try_relation(table, lock::Mode::Verify) {
        // Another VACUUM or an index build holds the lock, so Postgres would skip the worker's VACUUM with a warning.
        // The next sweep reads the table again, even if it does not change any more.
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

/// Returns whether VACUUM may shorten the file. To do so, VACUUM waits up to five seconds for a moment without
/// writers. If rows die quickly, more rows die during the wait than shortening gains.
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

/// Resets the count when a VACUUM begins. Dead bytes that are counted later call for the next VACUUM.
pub fn begin(need: &VacuumNeed, state: &SweepState) {
    state.dead_bytes[need.place].store(0, Relaxed);
}

/// Stores how many dead rows a VACUUM has left, and how large the table is.
pub fn note(need: &VacuumNeed, state: &SweepState) {
    let counted = storage::counted_of(&tables_at(need.cache, need.place));
    let dead = counted.map_or(0, |counted| counted.dead);
    state.unremoved_rows[need.place].store(dead, Relaxed);
    if relation::is_partitioned(need.cache) || !lock::try_relation(need.table, lock::Mode::Read) {
        return; // partitions count no dead bytes: see `Part` in `pg::hooks::trigger`
    }
    let size = storage::bytes(need.table);
    // Rows that an old snapshot still sees count as live. Otherwise, while the snapshot exists, VACUUM would read ever
    // more of these rows for the same gain.
    let held = match (need.place, counted) {
        (TOAST, Some(counted)) => {
            size.min((counted.live + counted.dead).max(0) as u64 * storage::TOAST_CHUNK)
        }
        _ => size,
    };
    state.vacuum_at[need.place].store(held / DEAD_BYTES_RATIO, Relaxed);
}

/// Resets the counts if no worker can vacuum the cache now. The next request comes after as many more bytes have died.
pub fn forget(state: &SweepState) {
    for died in &state.dead_bytes {
        died.store(0, Relaxed);
    }
}
