//! Whether Citus keeps a table's rows on other relations.
//!
//! The table itself is then empty, whatever a SELECT shows: Citus answers that from shards. Whoever
//! reads or writes it past the planner, or counts on its triggers, has nothing of them. Citus lists
//! such tables in a catalog of its own; where there is none, the answer costs one look-up in memory.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::ManuallyDrop;

use pgrx::pg_sys::{self, Datum, Oid};

use crate::pg::catalog::invalidation::Watch;
use crate::pg::memory::pg_list;

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

/// Whether the session is in a transaction block, as Citus sees it.
pub fn is_in_block() -> bool {
    // SAFETY: reads variables of this process.
    unsafe { pg_sys::IsTransactionBlock() }
}

/// Whether what is written on another node now would be committed there at once. It is outside of a transaction block
/// where the session's statement is one that writes by Citus, which evaluates its functions first, and where no
/// statement calls the function. Not in a trigger: that runs where the statement is under way.
pub fn commits_at_once() -> bool {
    // SAFETY: reads variables of this process; a portal that runs has its statements, of which each is looked at
    // after its tag. The depth of triggers is given without a look at the call.
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
/// The statement is one that runs.
unsafe fn is_writing_by_citus(statement: *const pg_sys::PlannedStmt) -> bool {
    use pg_sys::CmdType::{CMD_DELETE, CMD_INSERT, CMD_MERGE, CMD_UPDATE};
    let is = |node: *mut pg_sys::Node, tag| {
        // SAFETY: every node begins with its tag.
        !node.is_null() && unsafe { (*node).type_ } == tag
    };
    // SAFETY: as the caller says.
    unsafe {
        let kind = (*statement).commandType;
        let writes = (*statement).hasModifyingCTE
            || matches!(kind, CMD_INSERT | CMD_UPDATE | CMD_DELETE | CMD_MERGE);
        writes && is((*statement).planTree.cast(), pg_sys::NodeTag::T_CustomScan)
            || is((*statement).utilityStmt, pg_sys::NodeTag::T_ExplainStmt)
    }
}

/// Whether a transaction over several nodes is open that this one coordinates.
pub fn coordinates(node: i64) -> bool {
    let number = |row: pg_sys::HeapTupleHeader, column| {
        let mut null = true;
        // SAFETY: a row that Citus' function gives, and one of its columns.
        let value = unsafe { pg_sys::GetAttributeByNum(row, column, &mut null) };
        (!null).then_some(value)
    };
    // SAFETY: a function without arguments, if Citus has it: only a superuser makes one in pg_catalog.
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

/// Citus' function that says of which transaction over several nodes this is a part.
const CURRENT: [&CStr; 2] = [c"pg_catalog", c"get_current_transaction_id"];
/// The column with the node that coordinates it.
const INITIATOR: i16 = 3;
/// The column with its number; 0: there is none.
const NUMBER: i16 = 4;

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

/// The same, for a table that was asked about before without a look at the catalog. The answer holds until Citus says
/// that the relation has changed.
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

/// Whether a table is distributed, until it changes.
struct Known {
    watch: Watch,
    distributed: bool,
}

thread_local! {
    /// Never dropped, because callbacks may come as long as the process lives.
    static KNOWN: ManuallyDrop<RefCell<BTreeMap<u32, Known>>> = ManuallyDrop::default();
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
