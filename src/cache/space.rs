//! Room on disk: when a cache's table, or its TOAST table, is worth a VACUUM.
//!
//! Autovacuum looks once a minute, and in a minute a busy cache dies several times over. So the worker
//! vacuums what has died as soon as it is a fifth of what lives: then the table stays below twice its
//! fresh size even though it can grow while it is vacuumed.

use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::Oid;

use crate::pg::board::Record;
use crate::pg::storage::{self, Counted};

/// As autovacuum's threshold: below it a table is at most some pages too large.
const FEW: i64 = 50;
/// Dead rows that are worth it, as a part of the live ones.
const WORTH: i64 = 5;

/// A table that is worth a VACUUM, and its place in the record: 0 the cache's own, 1 its TOAST table.
pub struct Worth {
    pub table: Oid,
    pub place: usize,
}

/// The tables of a cache that are worth a VACUUM now. What the last one could not remove, because an
/// old snapshot still sees it, is not counted again until as much has been added.
pub fn worth_vacuum(cache: Oid, record: &Record) -> Vec<Worth> {
    let tables = [Some(cache), storage::toast_table(cache)];
    tables
        .into_iter()
        .enumerate()
        .filter_map(|(place, table)| {
            Some(Worth {
                table: table?,
                place,
            })
        })
        .filter(|worth| {
            let left = record.dead[worth.place].load(Relaxed);
            storage::counted(worth.table).is_some_and(|counted| is_worth(counted, left))
        })
        .collect()
}

fn is_worth(counted: Counted, left: i64) -> bool {
    let new = counted.dead - left;
    new > FEW && new * WORTH > counted.live + left
}

/// Writes down what a VACUUM has left.
pub fn note(worth: &Worth, record: &Record) {
    let dead = storage::counted(worth.table).map_or(0, |counted| counted.dead);
    record.dead[worth.place].store(dead, Relaxed);
}
