//! A table's room on disk: how large it is, how much of it is dead, and VACUUM.

use std::cell::LazyCell;
use std::ffi::{CStr, CString};

use pgrx::pg_sys::{self, Datum, Oid};

use crate::pg::session::failure::Failure;
use crate::pg::worker::background::without_snapshot;

/// Blocks of the table itself. The caller holds a lock on it.
pub fn blocks(relation: Oid) -> u32 {
    // SAFETY: the relation is open while it is asked for its size.
    unsafe {
        let open = pg_sys::table_open(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        let blocks =
            pg_sys::RelationGetNumberOfBlocksInFork(open, pg_sys::ForkNumber::MAIN_FORKNUM);
        pg_sys::table_close(open, pg_sys::NoLock as pg_sys::LOCKMODE);
        blocks
    }
}

/// Four chunks of a long value fill a page.
pub const TOAST_CHUNK: u64 = pg_sys::BLCKSZ as u64 / 4;

/// The same in bytes.
pub fn bytes(relation: Oid) -> u64 {
    u64::from(blocks(relation)) * u64::from(pg_sys::BLCKSZ)
}

/// The table that holds a table's long values.
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

/// What Postgres has counted of a table. Sessions report what they did within a second, or when they
/// come to rest.
#[derive(Clone, Copy)]
pub struct Counted {
    /// Rows inserted, updated and deleted so far.
    pub changes: i64,
    pub live: i64,
    pub dead: i64,
}

/// Postgres' counters of a table; None where it does not count (`track_counts = off`).
pub fn counted(relation: Oid) -> Option<Counted> {
    type Counter = unsafe fn(pg_sys::FunctionCallInfo) -> Datum;
    let count = |counter: Counter| {
        // SAFETY: each takes an oid and gives a bigint.
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

/// `VACUUM` of one table without its TOAST table; passes it over when somebody has locked it. To `shorten`
/// the file it waits up to five seconds for a moment without writers, in which more may die than it gains.
///
/// Run as the server would run it for a client, outside of any transaction, so in a worker only.
pub fn vacuum(relation: Oid, shorten: bool) -> Result<(), Failure> {
    without_snapshot(|| {
        if let Some(sql) = vacuum_statement(relation, shorten) {
            run_utility(&sql);
        }
    })
}

fn vacuum_statement(relation: Oid, shorten: bool) -> Option<CString> {
    // SAFETY: look-ups that give NULL for a relation that is gone, else copies.
    let name = unsafe {
        let name = pg_sys::get_rel_name(relation);
        if name.is_null() {
            return None;
        }
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation));
        CStr::from_ptr(pg_sys::quote_qualified_identifier(schema, name))
    };
    let options =
        format!("VACUUM (SKIP_LOCKED, PROCESS_TOAST false, PARALLEL 0, TRUNCATE {shorten}) ");
    CString::new([options.as_bytes(), name.to_bytes()].concat()).ok()
}

thread_local! {
    // Memory for one statement at a time; what one leaves that ends with an error goes with the next.
    static STATEMENT: LazyCell<pg_sys::MemoryContext> = LazyCell::new(|| {
        // SAFETY: made once and kept as long as the process.
        unsafe {
            pg_sys::AllocSetContextCreateInternal(
                pg_sys::TopMemoryContext,
                c"pgcache vacuum".as_ptr(),
                pg_sys::ALLOCSET_SMALL_MINSIZE as usize,
                pg_sys::ALLOCSET_SMALL_INITSIZE as usize,
                pg_sys::ALLOCSET_SMALL_MAXSIZE as usize,
            )
        }
    });
}

/// Runs one utility statement that ends the present transaction and leaves another one open. Its parse
/// tree lives in memory of its own, as it must outlive the transaction.
fn run_utility(sql: &CStr) {
    let memory = STATEMENT.with(|memory| **memory);
    // SAFETY: what a portal does for such a statement: a memory context that outlives transactions,
    // the parse tree in it, and ProcessUtility as a top-level statement.
    unsafe {
        pg_sys::MemoryContextReset(memory);
        pg_sys::PortalContext = memory;
        let former = pg_sys::MemoryContextSwitchTo(memory);
        let sql = pg_sys::pstrdup(sql.as_ptr());
        let parsed = pg_sys::pg_parse_query(sql);
        let statement: *mut pg_sys::RawStmt = (*(*parsed).elements).ptr_value.cast();
        let planned: *mut pg_sys::PlannedStmt =
            pg_sys::palloc0(size_of::<pg_sys::PlannedStmt>()).cast();
        (*planned).type_ = pg_sys::NodeTag::T_PlannedStmt;
        (*planned).commandType = pg_sys::CmdType::CMD_UTILITY;
        (*planned).canSetTag = true;
        (*planned).utilityStmt = (*statement).stmt;
        pg_sys::ProcessUtility(
            planned,
            sql,
            false,
            pg_sys::ProcessUtilityContext::PROCESS_UTILITY_TOPLEVEL,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            pg_sys::CreateDestReceiver(pg_sys::CommandDest::DestNone),
            std::ptr::null_mut(),
        );
        pg_sys::MemoryContextSwitchTo(former);
        pg_sys::PortalContext = std::ptr::null_mut();
        pg_sys::MemoryContextReset(memory);
    }
}
