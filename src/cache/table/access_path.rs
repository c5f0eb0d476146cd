//! Which way a call takes to the table: directly by the index, or by a kept plan.
//!
//! The one place that chooses. Both ways mean the same; the direct one is for tables that are plain
//! enough (`pg::table::target`), and `pgcache.table_path = plan` turns it off, for comparison and
//! for doubt.

use std::cell::Cell;

use crate::cache::catalog::registry::Cache;
use crate::guc;
use crate::pg::table::target::Target;
use crate::pg::table::write;

thread_local! {
    static TAKEN: Cell<Taken> = const { Cell::new(Taken { direct: 0, plan: 0 }) };
}

/// How often this session has gone each way.
#[derive(Clone, Copy)]
pub struct Taken {
    pub direct: i64,
    pub plan: i64,
}

/// What the session has counted so far.
pub fn taken() -> Taken {
    TAKEN.get()
}

/// The table, if a look-up by key goes to it directly.
#[inline]
pub fn to_read(cache: &Cache) -> Option<&Target> {
    counted(present(cache).filter(|target| {
        guc::table_path_is_direct() && !cache.row_security && target.is_indexed_for_reads()
    }))
}

/// The table, if a write by key goes to it directly.
#[inline]
pub fn to_write(cache: &Cache) -> Option<&Target> {
    counted(
        present(cache)
            .filter(|target| guc::table_path_is_direct() && target.writable && write::possible()),
    )
}

/// The table as it was judged, unless it has changed since: then a direct access might leave out
/// what has come.
#[inline]
fn present(cache: &Cache) -> Option<&Target> {
    cache.target.as_ref().filter(|_| !cache.is_stale())
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
