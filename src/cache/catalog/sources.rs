//! Finds the tables on which the entries of a cache depend, through the triggers that `cache_depend` created.

use std::ffi::CStr;

use pgrx::pg_sys::{OIDOID, Oid};

use crate::pg::hooks::{dependency, source};
use crate::pg::memory;
use crate::pg::session::transaction;
use crate::pg::spi::output::Output;
use crate::pg::spi::plan::{Paths, Plan, query_once};
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

/// Returns the pairs of a table and a cache with a dependency whose key follows the settings of each session that
/// changes a row, of one cache or of all. Reads only catalogs: takes no lock on a table, and waits for none.
pub fn that_follow_writers(cache: Option<Oid>) -> Vec<(Oid, Oid)> {
    let [rows, _] = dependency::functions();
    let arguments = [rows, cache.unwrap_or(Oid::INVALID)].map(Typed::oid);
    let conditions = Plan::prepare(CONDITIONS, &[OIDOID; 2], Paths::Any);
    conditions.run_as_of_now(&arguments, |output| {
        let mut pairs = memory::collect((0..output.rows()).filter_map(|row| {
            let follower = dependency::follows_writers(output.text(row, 1)?)?;
            (cache.is_none_or(|cache| cache == follower)).then_some((output.oid(row, 0)?, follower))
        }));
        pairs.sort_unstable_by_key(|&(source, cache)| (source.to_u32(), cache.to_u32()));
        pairs.dedup();
        pairs
    })
}

/// The conditions of dependency triggers for INSERT, of which each dependency has one, of cache $2 or of any cache if
/// $2 is 0. $1 is the function that they call.
const CONDITIONS: &CStr =
    c"SELECT t.tgrelid, t.tgqual::pg_catalog.text FROM pg_catalog.pg_trigger AS t \
    WHERE t.tgfoid OPERATOR(pg_catalog.=) $1 AND t.tgparentid OPERATOR(pg_catalog.=) 0 \
    AND t.tgtype OPERATOR(pg_catalog.&) 4::pg_catalog.int2 OPERATOR(pg_catalog.<>) 0 \
    AND ($2 OPERATOR(pg_catalog.=) 0 OR EXISTS (SELECT FROM pg_catalog.pg_depend AS d \
    WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass \
    AND d.objid OPERATOR(pg_catalog.=) t.oid \
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass \
    AND d.refobjid OPERATOR(pg_catalog.=) $2))";

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
