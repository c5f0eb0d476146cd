//! Decides whether a call accesses a table directly through its index or runs a saved plan. No other file decides this.
//!
//! Both paths have the same result. Tables that are plain enough are accessed directly (`pg::table::target`). The
//! setting `pgcache.table_path = plan` turns direct access off, for comparison and diagnosis.

use std::cell::Cell;

use crate::cache::catalog::registry::Cache;
use crate::guc;
use crate::pg::table::target::Target;
use crate::pg::table::write;

thread_local! {
    static TAKEN: Cell<Taken> = const { Cell::new(Taken { direct: 0, plan: 0 }) };
}

/// How often this session has taken each path.
#[derive(Clone, Copy)]
pub struct Taken {
    pub direct: i64,
    pub plan: i64,
}

/// Returns how often this session has taken each path.
pub fn taken() -> Taken {
    TAKEN.get()
}

/// Returns the table if a lookup by key accesses it directly, otherwise None. Counts the path.
#[inline]
pub fn to_read(cache: &Cache) -> Option<&Target> {
    counted(present(cache).filter(|target| {
        guc::table_path_is_direct() && !cache.row_security && target.is_indexed_for_reads()
    }))
}

/// Returns the table if a write by key accesses it directly, otherwise None. Counts the path.
#[inline]
pub fn to_write(cache: &Cache) -> Option<&Target> {
    counted(
        present(cache)
            .filter(|target| guc::table_path_is_direct() && target.writable && write::possible()),
    )
}

/// Returns the table's properties. Returns None if the table may have changed since they were read, because direct
/// access could bypass a new trigger, rule or policy.
#[inline]
fn present(cache: &Cache) -> Option<&Target> {
    let target = cache.target.as_ref();
    target.filter(|target| target.readable && !cache.is_stale())
}

fn counted(target: Option<&Target>) -> Option<&Target> {
    let mut taken = TAKEN.get();
    match target {
        Some(_) => taken.direct += 1,
        None => taken.plan += 1,
    }
    TAKEN.set(taken);
    target
}
