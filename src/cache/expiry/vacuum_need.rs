//! Room on disk: when a cache's table, or its TOAST table, is worth a VACUUM.
//!
//! Autovacuum looks once a minute, and in a minute a busy cache dies several times over. So the worker
//! vacuums what has died as soon as it is a fifth of what lives: then the table stays below twice its
//! fresh size even though it can grow while it is vacuumed.
//!
//! Large values die faster than that: 100 kB each, some hundred times a second, are as much as all that
//! lives between two visits of the worker, and what a table has grown it keeps. So writers count the bytes
//! that they leave dead, and raise an alarm, for which the worker comes at once. It is a hint: a
//! change that is rolled back counts as if it were not, and nothing but the time of a VACUUM depends on it.

use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::Oid;

use super::sweep;
use super::upkeep::Due;
use crate::cache::catalog::registry;
use crate::cache::model::expiring::Sweeping;
use crate::cache::tier::slots::owner_of;
use crate::pg::catalog::relation;
use crate::pg::events::Dead;
use crate::pg::session::{clock, lock};
use crate::pg::shmem::worker_state::{Record, board};
use crate::pg::table::storage::{self, Counted};

/// As autovacuum's threshold: below it a table is at most some pages too large.
const FEW: i64 = 50;
/// Dead rows that are worth it, as a part of the live ones.
const WORTH: i64 = 5;

/// Dead bytes for which nobody comes before the next sweep, whatever the table's size.
const LITTLE: u64 = 2 << 20;
/// Dead bytes that are worth it, as a part of what lives, as far as that is known: of the table's own size,
/// free room included, and of the chunks in the TOAST table.
const PART: u64 = 8;

/// Microseconds without an alarm after which a table has come to rest.
pub const QUIET: i64 = 2_000_000;

/// The place of a TOAST table in the record.
const TOAST: usize = 1;

/// A table that is worth a VACUUM, and its place in the record: 0 the cache's own, 1 its TOAST table.
pub struct Worth {
    pub table: Oid,
    pub place: usize,
    /// Whether the file may be shortened, see `may_shorten`.
    pub shorten: bool,
}

/// A write has left something dead. A sweep is followed by VACUUM anyway.
pub fn note_dead(relation: Oid, dead: Dead) {
    let Some(board) = board().filter(|_| !Sweeping::is_on()) else {
        return;
    };
    let shared = || !relation::is_temporary(relation);
    let Some(record) = board.own_or_free(owner_of(relation), shared) else {
        return;
    };
    for (place, bytes) in [dead.rows as u64, dead.long as u64].into_iter().enumerate() {
        if bytes == 0 {
            continue;
        }
        let died = record.died[place].fetch_add(bytes, Relaxed) + bytes;
        if died < enough(record, place) {
            continue;
        }
        match can_be_vacuumed(relation) {
            true => board.raise_alarm(record),
            false => forget(record),
        }
    }
}

/// Whether a worker could do anything for a table: it is no stranger's with our trigger.
fn can_be_vacuumed(relation: Oid) -> bool {
    registry::find(relation).is_ok()
}

fn enough(record: &Record, place: usize) -> u64 {
    record.worth[place].load(Relaxed).max(LITTLE)
}

/// The cache of an alarm, which is answered; None when it is none (any more), or cannot be worked on now.
pub fn answer(relation: Oid, record: &Record) -> Option<Due> {
    sweep::open(relation)?;
    record.answered.store(clock::now(), Relaxed);
    Some(Due {
        relation,
        owner: owner_of(relation),
        name: relation::display_name(relation),
        changes: 0,
    })
}

/// The tables of a cache that are worth a VACUUM now. What the last one could not remove, because an
/// old snapshot still sees it, is not counted again until as much has been added.
pub fn worth_vacuum(cache: Oid, record: &Record) -> Vec<Worth> {
    tables(cache, record, |table, place| is_worth(table, place, record))
}

/// The tables of a cache that has come to rest: what is free at their ends is given back.
pub fn worth_shortening(cache: Oid, record: &Record) -> Vec<Worth> {
    let mut worth = tables(cache, record, |_, _| true);
    worth.retain(|worth| worth.shorten);
    worth
}

fn tables(cache: Oid, record: &Record, wanted: impl Fn(Oid, usize) -> bool) -> Vec<Worth> {
    [Some(cache), storage::toast_table(cache)]
        .into_iter()
        .enumerate()
        .filter_map(|(place, table)| {
            let table = table.filter(|&table| wanted(table, place))?;
            if !lock::try_relation(table, lock::Mode::Verify) {
                // Another VACUUM is there, or who makes an index: ours would be passed over with a warning.
                record.died[place].store(0, Relaxed);
                return None;
            }
            Some(Worth {
                table,
                place,
                shorten: may_shorten(table, record),
            })
        })
        .collect()
}

/// To shorten a file, VACUUM waits up to five seconds for a moment without writers. Where rows die quickly
/// more of them die in that time than it gains.
fn may_shorten(table: Oid, record: &Record) -> bool {
    let quiet = clock::now() - record.answered.load(Relaxed);
    !(0..QUIET).contains(&quiet) && lock::try_relation(table, lock::Mode::Define)
}

fn is_worth(table: Oid, place: usize, record: &Record) -> bool {
    let left = record.dead[place].load(Relaxed);
    record.died[place].load(Relaxed) >= enough(record, place)
        || storage::counted(table).is_some_and(|counted| has_died(counted, left))
}

fn has_died(counted: Counted, left: i64) -> bool {
    let new = counted.dead - left;
    new > FEW && new * WORTH > counted.live + left
}

/// A VACUUM begins: what dies from now on is for the next one.
pub fn begin(worth: &Worth, record: &Record) {
    record.died[worth.place].store(0, Relaxed);
}

/// Writes down what a VACUUM has left, and how large the table is.
pub fn note(worth: &Worth, record: &Record) {
    let counted = storage::counted(worth.table);
    let dead = counted.map_or(0, |counted| counted.dead);
    record.dead[worth.place].store(dead, Relaxed);
    if !lock::try_relation(worth.table, lock::Mode::Read) {
        return;
    }
    let size = storage::bytes(worth.table);
    // What an old snapshot still sees counts as live: else ever more of it would be read again for the same
    // gain, as long as that snapshot lives.
    let held = match (worth.place, counted) {
        (TOAST, Some(counted)) => {
            size.min((counted.live + counted.dead).max(0) as u64 * storage::TOAST_CHUNK)
        }
        _ => size,
    };
    record.worth[worth.place].store(held / PART, Relaxed);
}

/// Nobody works on the cache now: an alarm comes again when as much more has died.
pub fn forget(record: &Record) {
    for died in &record.died {
        died.store(0, Relaxed);
    }
}
