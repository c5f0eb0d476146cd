//! The tables on which entries of a cache depend, as the catalogs tell them: by the triggers of dependencies.

use std::ffi::CStr;

use pgrx::pg_sys::{OIDOID, Oid};

use crate::pg::hooks::source;
use crate::pg::session::transaction;
use crate::pg::spi::plan::{Output, query_once};
use crate::pg::value::typed::Typed;

/// Whether entries of a cache depend on some table.
pub fn has_sources(cache: Oid) -> bool {
    let is_one = |output: &Output| output.rows() > 0;
    query_once(OF_CACHE, &[OIDOID], &[Typed::oid(cache)], is_one)
}

/// The triggers of the dependencies of cache $1.
pub const OF_CACHE: &CStr = c"SELECT d.objid FROM pg_catalog.pg_depend AS d \
    JOIN pg_catalog.pg_trigger AS t ON t.oid OPERATOR(pg_catalog.=) d.objid \
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass \
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
    AND d.refobjid OPERATOR(pg_catalog.=) $1 \
    AND t.tgfoid OPERATOR(pg_catalog.=) ANY (ARRAY[pg_catalog.to_regproc('pgcache.invalidate'), \
    pg_catalog.to_regproc('pgcache.invalidate_all')]::pg_catalog.oid[])";

/// Whether this transaction may have changed rows on which entries of a cache depend, and their triggers have not said
/// so yet: they do at the end of the statement.
pub fn may_be_half_changed(cache: Oid) -> bool {
    transaction::has_xid() && {
        let any = |output: &Output| {
            (0..output.rows())
                .any(|row| output.oid(row, 0).is_some_and(source::may_be_half_changed))
        };
        query_once(TABLES, &[OIDOID], &[Typed::oid(cache)], any)
    }
}

/// The tables with a trigger of a dependency, partitions among them.
const TABLES: &CStr = c"WITH RECURSIVE of_cache (oid, tgrelid) AS (\
    SELECT t.oid, t.tgrelid FROM pg_catalog.pg_depend AS d \
    JOIN pg_catalog.pg_trigger AS t ON t.oid OPERATOR(pg_catalog.=) d.objid \
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass \
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
    AND d.refobjid OPERATOR(pg_catalog.=) $1 \
    UNION ALL SELECT t.oid, t.tgrelid FROM pg_catalog.pg_trigger AS t \
    JOIN of_cache AS o ON t.tgparentid OPERATOR(pg_catalog.=) o.oid) \
    SELECT DISTINCT tgrelid FROM of_cache";
