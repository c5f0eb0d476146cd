//! Detects tables whose rows Citus keeps in shards, and statements that Citus runs on behalf of another node.
//!
//! A distributed table is itself empty: a SELECT shows its rows only because Citus plans the SELECT over the shards.
//! Code that bypasses the planner, or relies on the table's triggers, misses the rows. Citus lists distributed tables
//! in its own catalog; in a database without this catalog, the check costs one lookup in memory.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::ManuallyDrop;

use pgrx::pg_sys::{self, Datum, Oid};

use crate::pg::catalog::invalidation::Watch;
use crate::pg::memory::pg_list;

/// The schema `pg_catalog`, in which only a superuser can create objects.
const PG_CATALOG: Oid = Oid::from_u32(pg_sys::PG_CATALOG_NAMESPACE);
/// A catalog with a row for each distributed table, reference table, and table that only the coordinator holds.
const CATALOG: &CStr = c"pg_dist_partition";
/// The column of this catalog that identifies the table.
const TABLE: &CStr = c"logicalrelid";

thread_local! {
    static LOADED: OnceCell<bool> = const { OnceCell::new() };
}

/// Returns whether the server loaded Citus at its start. Only then can a table be distributed, because Citus must be
/// preloaded.
#[inline]
pub fn citus_is_loaded() -> bool {
    LOADED.with(|loaded| {
        *loaded.get_or_init(|| {
            let setting = c"citus.enable_unsafe_triggers";
            // SAFETY: returns NULL for a setting that does not exist.
            unsafe { !pg_sys::GetConfigOption(setting.as_ptr(), true, false).is_null() }
        })
    })
}

/// Returns whether Citus is loaded and installed in this database.
pub fn citus_is_there() -> bool {
    // SAFETY: a syscache lookup, which returns 0 for a missing relation.
    citus_is_loaded()
        && unsafe { pg_sys::get_relname_relid(CATALOG.as_ptr(), PG_CATALOG) } != pg_sys::InvalidOid
}

/// Returns whether Citus sent this SELECT to compute a part of a query, in a separate transaction. Writes in this
/// transaction would remain even if the query failed on another shard.
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

/// Returns whether the session is in a transaction block, as Citus sees it.
pub fn is_in_block() -> bool {
    // SAFETY: reads variables of this process.
    unsafe { pg_sys::IsTransactionBlock() }
}

/// Returns whether a write on another node would be committed there at once. This is possible only outside a
/// transaction block and outside triggers, which run within a statement. There, the result is true if the running
/// statement writes through Citus, which evaluates the statement's functions before the write, or if no statement
/// called the function.
pub fn commits_at_once() -> bool {
    // SAFETY: reads variables of this process; a running portal has its statements, each of which is read after its
    // tag. The depth of triggers is returned without reading the call.
    unsafe {
        let portal = pg_sys::ActivePortal;
        !is_in_block()
            && pg_sys::pg_trigger_depth(std::ptr::null_mut()).value() == 0
            && (portal.is_null()
                || pg_list::pointers::<pg_sys::PlannedStmt>((*portal).stmts)
                    .into_iter()
                    .any(|statement| is_writing_by_citus(statement)))
    }
}

/// # Safety
/// The statement is running.
unsafe fn is_writing_by_citus(statement: *const pg_sys::PlannedStmt) -> bool {
    use pg_sys::CmdType::{CMD_DELETE, CMD_INSERT, CMD_MERGE, CMD_UPDATE};
    let is = |node: *mut pg_sys::Node, tag| {
        // SAFETY: every node begins with its tag.
        !node.is_null() && unsafe { (*node).type_ } == tag
    };
    // SAFETY: by the caller's contract.
    unsafe {
        let kind = (*statement).commandType;
        let writes = (*statement).hasModifyingCTE
            || matches!(kind, CMD_INSERT | CMD_UPDATE | CMD_DELETE | CMD_MERGE);
        writes && is((*statement).planTree.cast(), pg_sys::NodeTag::T_CustomScan)
            || is((*statement).utilityStmt, pg_sys::NodeTag::T_ExplainStmt)
    }
}

/// Returns whether `node`, this node's id, coordinates an open transaction over several nodes.
pub fn coordinates(node: i64) -> bool {
    let number = |row: pg_sys::HeapTupleHeader, column| {
        let mut null = true;
        // SAFETY: a row that Citus' function returns, and one of its columns.
        let value = unsafe { pg_sys::GetAttributeByNum(row, column, &mut null) };
        (!null).then_some(value)
    };
    // SAFETY: a function without arguments, if Citus has it; only a superuser can create one in pg_catalog.
    unsafe {
        let name = CURRENT
            .into_iter()
            .fold(std::ptr::null_mut(), |name, part| {
                pg_sys::lappend(name, pg_sys::makeString(part.as_ptr().cast_mut()).cast())
            });
        let function = pg_sys::LookupFuncName(name, 0, std::ptr::null(), true);
        if function == pg_sys::InvalidOid {
            return false;
        }
        let row = pg_sys::OidFunctionCall0Coll(function, pg_sys::InvalidOid);
        let row = pg_sys::pg_detoast_datum(row.cast_mut_ptr()).cast();
        let by = number(row, INITIATOR).map(|by| i64::from(by.value() as i32));
        by == Some(node) && number(row, NUMBER).is_some_and(|number| number.value() != 0)
    }
}

/// Citus' function that returns the id of the distributed transaction to which this transaction belongs.
const CURRENT: [&CStr; 2] = [c"pg_catalog", c"get_current_transaction_id"];
/// The column with the id of the coordinating node.
const INITIATOR: i16 = 3;
/// The column with the distributed transaction's number, which is 0 if this transaction belongs to none.
const NUMBER: i16 = 4;

/// The prefix of the application name of Citus' connections between nodes.
const INTERNAL: &[u8] = b"citus_internal";

/// Returns whether Citus' shards hold the rows of a table. The caller holds a lock on the table. When the answer
/// changes, Citus invalidates the relation.
pub fn is_distributed(table: Oid) -> bool {
    // SAFETY: syscache lookups, which return 0 for a missing object.
    let (catalog, column) = unsafe {
        let catalog = pg_sys::get_relname_relid(CATALOG.as_ptr(), PG_CATALOG);
        if catalog == pg_sys::InvalidOid {
            return false;
        }
        (catalog, pg_sys::get_attnum(catalog, TABLE.as_ptr()))
    };
    // SAFETY: a syscache lookup, which returns 0 for a missing object.
    column > 0
        && unsafe { pg_sys::get_atttype(catalog, column) } == pg_sys::REGCLASSOID
        && has_row(catalog, column, table)
}

/// Returns whether Citus distributes a table. Remembers the answer until Citus invalidates the relation, so that a
/// second call does not read the catalog.
pub fn is_known(table: Oid) -> bool {
    if !citus_is_loaded() {
        return false;
    }
    let number = table.to_u32();
    let known = |all: &BTreeMap<u32, Known>| {
        let known = all.get(&number).filter(|known| !known.watch.is_stale());
        known.map(|known| known.distributed)
    };
    if let Some(distributed) = KNOWN.with(|all| known(&all.borrow())) {
        return distributed;
    }
    let watch = Watch::over(table);
    let distributed = is_distributed(table);
    KNOWN.with(|all| {
        let mut all = all.borrow_mut();
        all.retain(|_, known| !known.watch.is_stale());
        all.insert(number, Known { watch, distributed });
    });
    distributed
}

/// Whether a table is distributed, valid until the table changes.
struct Known {
    watch: Watch,
    distributed: bool,
}

thread_local! {
    /// Never dropped, because callbacks may come as long as the process lives.
    static KNOWN: ManuallyDrop<RefCell<BTreeMap<u32, Known>>> = ManuallyDrop::default();
}

fn has_row(catalog: Oid, column: i16, table: Oid) -> bool {
    // SAFETY: try_relation_open returns NULL for a dropped relation; a relation that is not a table is not scanned. The
    // column holds OIDs, by the caller's contract. If the caller has no snapshot, the scan takes a new one, which ends
    // before the catalog is closed.
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
            // A sequential scan suffices, because the catalog has only one row for each distributed table, and is read
            // only when a session first uses a cache.
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
