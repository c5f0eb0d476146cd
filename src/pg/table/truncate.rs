//! Removes all rows of a table at once, as TRUNCATE does, but finds the table by its OID.

use std::ptr::null_mut;

use pgrx::pg_sys::{self, Oid};

use crate::pg::catalog::{inheritance, relation};
use crate::pg::memory::pg_list;
use crate::pg::session::lock::Mode;
use crate::pg::version;

/// Truncates the table with this OID as `TRUNCATE TABLE ONLY` does, and a partitioned table as TRUNCATE does. Does not
/// run a statement, for two reasons: the table's name may refer to another table by the time the statement runs, and
/// the cache's owner, whose rights the statement would need, may lack USAGE on the schema.
///
/// The caller holds the lock that TRUNCATE takes, has checked the privilege, and has an active snapshot; this function
/// locks the partitions. Raises 0A000 if a foreign key refers to the table, and 55006 if the session still reads it.
pub fn truncate(relation: Oid) {
    let all = match relation::is_partitioned(relation) {
        true => inheritance::family(relation, Mode::Remove),
        false => vec![relation],
    };
    // SAFETY: the tables exist and stay, by the locks of the caller and of `family`; they are open until the end. This
    // code makes the checks that Postgres requires of TRUNCATE's caller: no table is in use, and it calls the object
    // access hook. The lists contain exactly these tables.
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

/// Returns whether logical replication must receive the change, like Postgres' macro `RelationIsLogicallyLogged` for a
/// table that is not a catalog.
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
