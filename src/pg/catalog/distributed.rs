//! Whether Citus keeps a table's rows on other relations.
//!
//! The table itself is then empty, whatever a SELECT shows: Citus answers that from shards. Whoever
//! reads or writes it past the planner, or counts on its triggers, has nothing of them. Citus lists
//! such tables in a catalog of its own; where there is none, the answer costs one look-up in memory.

use std::cell::OnceCell;
use std::ffi::CStr;

use pgrx::pg_sys::{self, Datum, Oid};

/// The schema `pg_catalog`, in which only a superuser can make anything.
const PG_CATALOG: Oid = Oid::from_u32(pg_sys::PG_CATALOG_NAMESPACE);
/// A row for each table: distributed, a reference table, or one on the coordinator alone.
const CATALOG: &CStr = c"pg_dist_partition";
const TABLE: &CStr = c"logicalrelid";

thread_local! {
    static LOADED: OnceCell<bool> = const { OnceCell::new() };
}

/// Whether the server has loaded Citus, at its start, as it must be: only then can a table of it be distributed.
#[inline]
pub fn citus_is_loaded() -> bool {
    LOADED.with(|loaded| {
        *loaded.get_or_init(|| {
            let setting = c"citus.enable_unsafe_triggers";
            // SAFETY: gives NULL for a setting that is not there.
            unsafe { !pg_sys::GetConfigOption(setting.as_ptr(), true, false).is_null() }
        })
    })
}

/// Whether Citus is in this database, too.
pub fn citus_is_there() -> bool {
    // SAFETY: a syscache look-up, which gives 0 for what is not there.
    citus_is_loaded()
        && unsafe { pg_sys::get_relname_relid(CATALOG.as_ptr(), PG_CATALOG) } != pg_sys::InvalidOid
}

/// Whether Citus has sent this SELECT to compute a part of a query, as a transaction of its own: what it writes would
/// stay where the query fails on another shard.
pub fn is_part_of_a_query() -> bool {
    // SAFETY: reads variables of this process; the setting's value is a valid string until it is set anew.
    unsafe {
        let name = CStr::from_ptr(pg_sys::application_name);
        let portal = pg_sys::ActivePortal;
        name.to_bytes().starts_with(INTERNAL)
            && !pg_sys::IsTransactionBlock()
            && !portal.is_null()
            && (*portal).commandTag == pg_sys::CommandTag::CMDTAG_SELECT
    }
}

/// How the application name of a connection begins that Citus makes from node to node.
const INTERNAL: &[u8] = b"citus_internal";

/// Whether the rows of a table are those of Citus' shards. The caller holds a lock on it; when that
/// changes, Citus says that the relation has changed.
pub fn is_distributed(table: Oid) -> bool {
    // SAFETY: syscache look-ups, which give 0 for what is not there.
    let (catalog, column) = unsafe {
        let catalog = pg_sys::get_relname_relid(CATALOG.as_ptr(), PG_CATALOG);
        if catalog == pg_sys::InvalidOid {
            return false;
        }
        (catalog, pg_sys::get_attnum(catalog, TABLE.as_ptr()))
    };
    // SAFETY: as above.
    column > 0
        && unsafe { pg_sys::get_atttype(catalog, column) } == pg_sys::REGCLASSOID
        && has_row(catalog, column, table)
}

fn has_row(catalog: Oid, column: i16, table: Oid) -> bool {
    // SAFETY: try_relation_open gives NULL for a relation that is gone; what is no table is not
    // scanned. The column is one of oids, by the caller's word. Without a snapshot of the caller's
    // the scan takes one of now, and it ends before the catalog is closed.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let open = pg_sys::try_relation_open(catalog, lock);
        if open.is_null() {
            return false;
        }
        let mut found = false;
        if (*(*open).rd_rel).relkind == pg_sys::RELKIND_RELATION as i8 {
            let mut key = pg_sys::ScanKeyData::default();
            pg_sys::ScanKeyInit(
                &mut key,
                column,
                pg_sys::BTEqualStrategyNumber as u16,
                pg_sys::Oid::from_u32(pg_sys::F_OIDEQ),
                Datum::from(table),
            );
            // By the heap: a row for each distributed table, asked when a session meets a cache.
            let scan = pg_sys::systable_beginscan(
                open,
                pg_sys::InvalidOid,
                false,
                std::ptr::null_mut(),
                1,
                &mut key,
            );
            found = !pg_sys::systable_getnext(scan).is_null();
            pg_sys::systable_endscan(scan);
        }
        pg_sys::relation_close(open, lock);
        found
    }
}
