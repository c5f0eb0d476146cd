//! Room on disk: when a cache's table, or its TOAST table, is worth a VACUUM.
//!
//! Autovacuum looks once a minute, and in a minute a busy cache dies several times over. So the
//! worker vacuums what has died as soon as it is a fifth of what lives: then the table stays below
//! twice its fresh size even though it can grow while it is vacuumed.
//!
//! Large values die faster than that: 100 kB each, some hundred times a second, are as much as all
//! that lives between two visits of the worker, and what a table has grown it keeps. So writers
//! count the bytes that they leave dead, and request a VACUUM, for which the worker comes at once.
//! It is a hint: a change that is rolled back counts as if it were not, and nothing but the time of
//! a VACUUM depends on it.

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

/// As autovacuum's threshold: below it a table is at most some pages too large.
const MIN_DEAD_ROWS: i64 = 50;
/// Dead rows that are worth it, as a part of the live ones.
const DEAD_ROW_RATIO: i64 = 5;

/// Dead bytes for which nobody comes before the next sweep, whatever the table's size.
const MIN_DEAD_BYTES: u64 = 2 << 20;
/// Dead bytes that are worth it, as a part of what lives, as far as that is known: of the table's
/// own size, free room included, and of the chunks in the TOAST table.
const DEAD_BYTES_RATIO: u64 = 8;

/// Microseconds without a request for a VACUUM after which a table has come to rest.
pub const QUIET: i64 = 2_000_000;

/// The places in the state: of the tables with the rows, and of the TOAST tables.
const OWN: usize = 0;
const TOAST: usize = 1;

/// A table that is worth a VACUUM, and its place in the state: 0 the cache's own, 1 its TOAST
/// table.
pub struct VacuumNeed {
    cache: Oid,
    pub table: Oid,
    pub place: usize,
    /// Whether the file may be shortened, see `may_shorten`.
    pub shorten: bool,
}

/// A write has left something dead. A sweep is followed by VACUUM anyway.
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

/// Whether a worker could do anything for a table: it is no stranger's with our trigger.
fn can_be_vacuumed(relation: Oid) -> bool {
    registry::find(relation).is_ok()
}

fn dead_bytes_limit(state: &SweepState, place: usize) -> u64 {
    state.vacuum_at[place].load(Relaxed).max(MIN_DEAD_BYTES)
}

/// The cache for which a VACUUM was requested; None when it is no cache (any more), or cannot be
/// worked on now.
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

/// The tables of a cache that are worth a VACUUM now. What the last one could not remove, because
/// an old snapshot still sees it, is not counted again until as much has been added.
pub fn tables_to_vacuum(cache: Oid, state: &SweepState) -> Vec<VacuumNeed> {
    tables(cache, state, |tables, place| {
        needs_vacuum(tables, place, state)
    })
}

/// The tables of a cache that has come to rest: what is free at their ends is given back.
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

/// The tables with a cache's rows, or those with their long values. Partitions are not locked: one may be
/// gone when it is looked at.
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

/// Of several partitions those in which much has died.
fn is_worth_it(table: Oid, all: &[Oid]) -> bool {
    all.len() <= 1 || storage::counted(table).is_some_and(|counted| has_died(counted, 0))
}

fn open(cache: Oid, table: Oid, place: usize, state: &SweepState) -> Option<VacuumNeed> {
    if !lock::try_relation(table, lock::Mode::Verify) {
        // Another VACUUM is there, or who makes an index: ours would be passed over with a
        // warning. Once they are gone it is looked at again, though nothing may change in
        // the table any more.
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

/// To shorten a file, VACUUM waits up to five seconds for a moment without writers. Where rows die
/// quickly more of them die in that time than it gains.
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

/// A VACUUM begins: what dies from now on is for the next one.
pub fn begin(need: &VacuumNeed, state: &SweepState) {
    state.dead_bytes[need.place].store(0, Relaxed);
}

/// Writes down what a VACUUM has left, and how large the table is.
pub fn note(need: &VacuumNeed, state: &SweepState) {
    let counted = storage::counted_of(&tables_at(need.cache, need.place));
    let dead = counted.map_or(0, |counted| counted.dead);
    state.unremoved_rows[need.place].store(dead, Relaxed);
    if relation::is_partitioned(need.cache) || !lock::try_relation(need.table, lock::Mode::Read) {
        return; // partitions count no dead bytes: see the trigger of a row
    }
    let size = storage::bytes(need.table);
    // What an old snapshot still sees counts as live: else ever more of it would be read again for
    // the same gain, as long as that snapshot lives.
    let held = match (need.place, counted) {
        (TOAST, Some(counted)) => {
            size.min((counted.live + counted.dead).max(0) as u64 * storage::TOAST_CHUNK)
        }
        _ => size,
    };
    state.vacuum_at[need.place].store(held / DEAD_BYTES_RATIO, Relaxed);
}

/// Nobody works on the cache now: the next request comes when as much more has died.
pub fn forget(state: &SweepState) {
    for died in &state.dead_bytes {
        died.store(0, Relaxed);
    }
}
