//! Finds the tables on which the entries of a cache depend, through the triggers that `cache_depend` created.

use std::ffi::CStr;

use pgrx::pg_sys::{OIDOID, Oid};

use crate::pg::hooks::{dependency, source};
use crate::pg::memory;
use crate::pg::session::transaction;
use crate::pg::spi::output::Output;
use crate::pg::spi::plan::query_once;
use crate::pg::value::typed::Typed;

/// Returns whether the entries of a cache depend on any table.
pub fn has_sources(cache: Oid) -> bool {
    triggers_of_cache(cache, |output| output.rows() > 0)
}

/// The dependency triggers of cache $1, which call function $2 or $3.
const OF_CACHE: &CStr = c"SELECT d.objid FROM pg_catalog.pg_depend AS d \
    JOIN pg_catalog.pg_trigger AS t ON t.oid OPERATOR(pg_catalog.=) d.objid \
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass \
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
    AND d.refobjid OPERATOR(pg_catalog.=) $1 \
    AND (t.tgfoid OPERATOR(pg_catalog.=) $2 OR t.tgfoid OPERATOR(pg_catalog.=) $3)";

/// Passes the dependency triggers of a cache to `read`, and returns its result.
pub fn triggers_of_cache<R>(cache: Oid, read: impl FnOnce(&Output) -> R) -> R {
    let [rows, truncate] = dependency::functions();
    let arguments = [cache, rows, truncate].map(Typed::oid);
    query_once(OF_CACHE, &[OIDOID; 3], &arguments, read)
}

/// Returns the tables of this database that have a dependency trigger for rows.
pub fn tables_with_dependencies() -> Vec<Oid> {
    let [rows, _] = dependency::functions();
    query_once(DECLARED_ON, &[OIDOID], &[Typed::oid(rows)], |output| {
        memory::collect((0..output.rows()).filter_map(|row| output.oid(row, 0)))
    })
}

const DECLARED_ON: &CStr = c"SELECT DISTINCT t.tgrelid FROM pg_catalog.pg_trigger AS t \
    WHERE t.tgfoid OPERATOR(pg_catalog.=) $1 AND t.tgparentid OPERATOR(pg_catalog.=) 0 ORDER BY 1";

/// Returns whether this transaction may have changed rows on which entries of a cache depend while their triggers are
/// still pending. The triggers run at the end of the statement.
pub fn may_be_half_changed(cache: Oid) -> bool {
    transaction::has_xid() && {
        let any = |output: &Output| {
            (0..output.rows())
                .any(|row| output.oid(row, 0).is_some_and(source::may_be_half_changed))
        };
        query_once(TABLES, &[OIDOID], &[Typed::oid(cache)], any)
    }
}

/// The tables with a trigger of a dependency, including partitions.
const TABLES: &CStr = c"WITH RECURSIVE of_cache (oid, tgrelid) AS (\
    SELECT t.oid, t.tgrelid FROM pg_catalog.pg_depend AS d \
    JOIN pg_catalog.pg_trigger AS t ON t.oid OPERATOR(pg_catalog.=) d.objid \
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass \
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
    AND d.refobjid OPERATOR(pg_catalog.=) $1 \
    UNION ALL SELECT t.oid, t.tgrelid FROM pg_catalog.pg_trigger AS t \
    JOIN of_cache AS o ON t.tgparentid OPERATOR(pg_catalog.=) o.oid) \
    SELECT DISTINCT tgrelid FROM of_cache";
