//! Runs VACUUM on a cache's table from a background worker, as Postgres runs it for a client.

use std::cell::LazyCell;
use std::ffi::{CStr, CString};

use pgrx::pg_sys::{self, Oid};

use super::background::without_snapshot;
use crate::pg::session::failure::Failure;

/// Runs VACUUM on one table without its TOAST table. Skips a table that another session has locked. Truncates the file
/// only with `shorten`. To truncate it, VACUUM waits up to five seconds for a moment without writers, and during this
/// wait more bytes may become dead than the truncation gains.
///
/// VACUUM must run outside a transaction block, so only a worker can call this.
pub fn vacuum(relation: Oid, shorten: bool) -> Result<(), Failure> {
    without_snapshot(|| {
        if let Some(sql) = vacuum_statement(relation, shorten) {
            run_vacuum(relation, &sql);
        }
    })
}

/// Returns the VACUUM statement; None if the table was dropped. Postgres' messages show the table's name in the
/// statement, but VACUUM finds the table by its OID.
fn vacuum_statement(relation: Oid, shorten: bool) -> Option<CString> {
    // SAFETY: the lookups return NULL for a dropped relation, otherwise copies.
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
    // The memory of one statement. The next statement frees it, also after an error.
    static STATEMENT: LazyCell<pg_sys::MemoryContext> = LazyCell::new(|| {
        // SAFETY: TopMemoryContext exists in every process, and outlives the new context, which is made once and never
        // deleted; the name is static, because Postgres keeps a pointer to it.
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

/// Runs VACUUM, which ends the current transaction and leaves another transaction open. The parse tree needs separate
/// memory, because it must outlive the transaction. VACUUM also receives the table's OID, because no lock protects the
/// name.
fn run_vacuum(relation: Oid, sql: &CStr) {
    let memory = STATEMENT.with(|memory| **memory);
    // SAFETY: the code does what a portal does for a VACUUM: it puts the parse tree into a memory context that outlives
    // transactions, and calls ProcessUtility for a top-level statement. The tree is a VACUUM of one table, as
    // `vacuum_statement` writes it.
    unsafe {
        pg_sys::MemoryContextReset(memory);
        pg_sys::PortalContext = memory;
        let former = pg_sys::MemoryContextSwitchTo(memory);
        let sql = pg_sys::pstrdup(sql.as_ptr());
        let parsed = pg_sys::pg_parse_query(sql);
        let statement: *mut pg_sys::RawStmt = (*(*parsed).elements).ptr_value.cast();
        let vacuum: *mut pg_sys::VacuumStmt = (*statement).stmt.cast();
        let table: *mut pg_sys::VacuumRelation = (*(*(*vacuum).rels).elements).ptr_value.cast();
        (*table).oid = relation;
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
