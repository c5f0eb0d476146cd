//! Reads the state of a table's storage: its size on disk, its TOAST table, and Postgres' counts of its changes and
//! dead rows.

use pgrx::pg_sys::{self, Datum, Oid};

use crate::pg::catalog::relation;

/// The size of a chunk in a TOAST table; four chunks fill a page.
pub const TOAST_CHUNK: u64 = pg_sys::BLCKSZ as u64 / 4;

/// Returns the size of the table itself in bytes. The caller holds a lock on it.
pub fn bytes(relation: Oid) -> u64 {
    u64::from(relation::blocks(relation)) * u64::from(pg_sys::BLCKSZ)
}

pub fn toast_table(relation: Oid) -> Option<Oid> {
    // SAFETY: the tuple is released after its one field has been copied.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::RELOID as i32,
            Datum::from(relation),
        );
        if tuple.is_null() {
            return None;
        }
        let class: pg_sys::Form_pg_class = pg_sys::GETSTRUCT(tuple).cast();
        let toast = (*class).reltoastrelid;
        pg_sys::ReleaseSysCache(tuple);
        (toast != pg_sys::InvalidOid).then_some(toast)
    }
}

/// Postgres' counts of a table. Sessions report their changes within a second, or when they become idle.
#[derive(Clone, Copy)]
pub struct Counted {
    /// The number of rows inserted, updated and deleted so far.
    pub changes: i64,
    pub live: i64,
    pub dead: i64,
}

/// Returns Postgres' counts of a table; None if Postgres does not count (`track_counts = off`).
pub fn counted(relation: Oid) -> Option<Counted> {
    type Counter = unsafe fn(pg_sys::FunctionCallInfo) -> Datum;
    let count = |counter: Counter| {
        // SAFETY: each of the functions below takes any OID, and returns a bigint or NULL.
        let found =
            unsafe { pgrx::direct_function_call_as_datum(counter, &[Some(Datum::from(relation))]) };
        found.map_or(0, |datum| datum.value() as i64)
    };
    // SAFETY: a plain C variable of this process.
    if !unsafe { pg_sys::pgstat_track_counts } {
        return None;
    }
    Some(Counted {
        changes: count(pg_sys::pg_stat_get_tuples_inserted)
            + count(pg_sys::pg_stat_get_tuples_updated)
            + count(pg_sys::pg_stat_get_tuples_deleted),
        live: count(pg_sys::pg_stat_get_live_tuples),
        dead: count(pg_sys::pg_stat_get_dead_tuples),
    })
}

/// Returns the sums of the counts of several tables; None if Postgres does not count.
pub fn counted_of(tables: &[Oid]) -> Option<Counted> {
    let none = Counted {
        changes: 0,
        live: 0,
        dead: 0,
    };
    let mut all = tables.iter().map(|&table| counted(table));
    all.try_fold(none, |sum, one| {
        let one = one?;
        Some(Counted {
            changes: sum.changes + one.changes,
            live: sum.live + one.live,
            dead: sum.dead + one.dead,
        })
    })
}
