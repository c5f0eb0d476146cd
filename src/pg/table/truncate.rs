//! Removing all rows of a table at once, as TRUNCATE does.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, Oid};

use crate::pg::version;

/// What `TRUNCATE TABLE ONLY` does with the table of this number. The number says which table is
/// meant: its name may have come to stand for another one, and the owner of a cache, as whom we
/// empty it, need not have the right to use its schema.
///
/// The caller holds the lock that TRUNCATE takes, has the right to it and an active snapshot.
/// Raises 0A000 where a foreign key refers to the table, 55006 where the session still reads it.
pub fn truncate(relation: Oid) {
    // SAFETY: the table is there and stays, by the caller's lock; it is open until the end. What
    // Postgres asks of TRUNCATE's caller is asked here: the table is not in use, and whoever
    // watches accesses of objects is told. The lists are made of what they say.
    unsafe {
        pg_sys::CommandCounterIncrement();
        let table = pg_sys::table_open(relation, pg_sys::NoLock as i32);
        pg_sys::CheckTableNotInUse(table, c"TRUNCATE".as_ptr());
        if (&raw const pg_sys::object_access_hook).read().is_some() {
            pg_sys::RunObjectTruncateHook(relation);
        }
        let logged = match is_logically_logged(table) {
            true => pg_sys::lappend_oid(null_mut(), relation),
            false => null_mut(),
        };
        version::truncate(
            pg_sys::lappend(null_mut(), table.cast()),
            pg_sys::lappend_oid(null_mut(), relation),
            logged,
        );
        pg_sys::table_close(table, pg_sys::NoLock as i32);
        pg_sys::CommandCounterIncrement();
    }
}

/// Whether logical replication is to hear of it: Postgres' `RelationIsLogicallyLogged`, of a table
/// that is no catalog.
///
/// # Safety
/// The table is open.
unsafe fn is_logically_logged(table: pg_sys::Relation) -> bool {
    // SAFETY: a variable of this process, and a field of a relation that is open.
    unsafe {
        pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_LOGICAL as i32
            && (*(*table).rd_rel).relpersistence == pg_sys::RELPERSISTENCE_PERMANENT as i8
    }
}
