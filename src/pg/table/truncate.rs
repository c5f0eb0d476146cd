//! Removes all rows of a table at once, as TRUNCATE does, but finds the table by its oid.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, Oid};

use crate::pg::catalog::{inheritance, relation};
use crate::pg::memory::pg_list;
use crate::pg::session::lock::Mode;
use crate::pg::version;

/// Truncates the table with this oid as `TRUNCATE TABLE ONLY` does, and a partitioned table as TRUNCATE does. A
/// statement cannot be used: the table's name may refer to another table by now, and the owner of the cache, as whom
/// the table is emptied, may lack USAGE on its schema.
///
/// The caller holds the lock that TRUNCATE takes, has checked the privilege, and has an active snapshot; partitions
/// are locked here. Raises 0A000 if a foreign key refers to the table, and 55006 if the session still reads it.
pub fn truncate(relation: Oid) {
    let all = match relation::is_partitioned(relation) {
        true => inheritance::family(relation, Mode::Remove),
        false => vec![relation],
    };
    // SAFETY: the tables exist and stay, by the caller's lock and `family`'s; they are open until the end. The checks
    // that Postgres requires of TRUNCATE's caller are made here: no table is in use, and the object access hook is
    // called. The lists are made of these tables.
    unsafe {
        pg_sys::CommandCounterIncrement();
        let (mut tables, mut numbers, mut logged) = (null_mut(), null_mut(), null_mut());
        for number in all {
            let table = pg_sys::table_open(number, pg_sys::NoLock as pg_sys::LOCKMODE);
            pg_sys::CheckTableNotInUse(table, c"TRUNCATE".as_ptr());
            if (&raw const pg_sys::object_access_hook).read().is_some() {
                pg_sys::RunObjectTruncateHook(number);
            }
            tables = pg_sys::lappend(tables, table.cast());
            numbers = pg_sys::lappend_oid(numbers, number);
            if is_logically_logged(table) {
                logged = pg_sys::lappend_oid(logged, number);
            }
        }
        version::truncate(tables, numbers, logged);
        for table in pg_list::pointers(tables) {
            pg_sys::table_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        }
        pg_sys::CommandCounterIncrement();
    }
}

/// Returns whether logical replication must receive the change: Postgres' `RelationIsLogicallyLogged`, for a table
/// that is not a catalog.
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
