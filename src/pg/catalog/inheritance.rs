//! Lists the children and partitions of a table, and checks whether they hold rows.

use pgrx::pg_sys::{self, Oid};

use super::{catalog_rows, relation};
use crate::pg::memory::{pg_list, unguarded};
use crate::pg::session::lock::Mode;

unsafe extern "C-unwind" {
    fn find_all_inheritors(
        parent: Oid,
        lock: pg_sys::LOCKMODE,
        parents: *mut *mut pg_sys::List,
    ) -> *mut pg_sys::List;
}

/// Returns a table and all tables that inherit from it, directly or indirectly. Locks the inheriting tables in this
/// mode until the transaction ends. The caller has locked the table itself.
pub fn family(table: Oid, mode: Mode) -> Vec<Oid> {
    // SAFETY: one call, which takes the locks itself and returns a list of OIDs in the memory context of the caller,
    // where `oids` copies it.
    unsafe {
        let inheritors =
            unguarded::guarded(|| find_all_inheritors(table, mode.number(), std::ptr::null_mut()));
        pg_list::oids(inheritors)
    }
}

/// Returns the partitions that hold the rows of a partitioned table, at any depth. Takes no locks, so a partition may
/// be dropped before the caller reads it.
pub fn leaves(table: Oid) -> Vec<Oid> {
    // SAFETY: one call, which without a lock reads only pg_inherits, and returns a list of OIDs in the memory context
    // of the caller, where `oids` copies it.
    let mut all = unsafe {
        let no_lock = pg_sys::NoLock as pg_sys::LOCKMODE;
        let inheritors =
            unguarded::guarded(|| find_all_inheritors(table, no_lock, std::ptr::null_mut()));
        pg_list::oids(inheritors)
    };
    all.retain(|&member| relation::is_table(member) && !relation::is_partitioned(member));
    all
}

/// Returns whether a table is still a partition of `root` that holds rows. The caller has locked the table.
pub fn is_leaf_of(table: Oid, root: Oid) -> bool {
    leaves(root).contains(&table)
}

/// Returns whether `child` inherits from `parent`, directly or indirectly, and is another table. Locks all tables that
/// inherit from `parent`.
pub fn is_child(child: Oid, parent: Oid) -> bool {
    child != parent && family(parent, Mode::Read).contains(&child)
}

/// Returns the first unlogged table of a family, whose rows a crash would remove; None if it has none. Skips
/// partitioned tables, which store no rows.
pub fn unlogged(table: Oid) -> Option<Oid> {
    family(table, Mode::Read).into_iter().find(|&table| {
        relation::persistence(table) == Some(pg_sys::RELPERSISTENCE_UNLOGGED)
            && !relation::is_partitioned(table)
    })
}

/// Returns whether a table, or a table that inherits from it, may have rows: its file is not empty, or it is a foreign
/// table, which has no file.
pub fn has_content(table: Oid) -> bool {
    family(table, Mode::Read).into_iter().any(|table| {
        // SAFETY: `family` or the caller has locked the table, so it exists while its kind and size are read.
        unsafe {
            let open = pg_sys::relation_open(table, pg_sys::NoLock as pg_sys::LOCKMODE);
            let found = match (*(*open).rd_rel).relkind as u8 {
                pg_sys::RELKIND_PARTITIONED_TABLE => false,
                pg_sys::RELKIND_RELATION => {
                    let fork = pg_sys::ForkNumber::MAIN_FORKNUM;
                    pg_sys::RelationGetNumberOfBlocksInFork(open, fork) > 0
                }
                _ => true,
            };
            pg_sys::relation_close(open, pg_sys::NoLock as pg_sys::LOCKMODE);
            found
        }
    })
}

/// Returns whether a table exists and is not a partition.
pub fn is_plain(table: Oid) -> bool {
    catalog_rows::class(table).is_some_and(|class| !class.is_partition)
}
