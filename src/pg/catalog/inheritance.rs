//! Children of tables and partitions: who they are, and whether there is anything in them.

use pgrx::pg_sys::{self, Oid};

use super::lookup;
use crate::pg::memory::{list, unguarded};
use crate::pg::session::lock::Mode;

unsafe extern "C-unwind" {
    fn find_all_inheritors(
        parent: Oid,
        lock: pg_sys::LOCKMODE,
        parents: *mut *mut pg_sys::List,
    ) -> *mut pg_sys::List;
}

/// A table and all that inherit from it, over however many steps, each with this lock from now on.
pub fn family(table: Oid, mode: Mode) -> Vec<Oid> {
    // SAFETY: the sequence is one call, which gives a list of oids in the memory context of the caller.
    unsafe {
        let inheritors =
            unguarded::guarded(|| find_all_inheritors(table, mode.number(), std::ptr::null_mut()));
        list::oids(inheritors)
    }
}

/// Whether one table is a child of the other, over however many steps.
pub fn is_child(child: Oid, parent: Oid) -> bool {
    child != parent && family(parent, Mode::Read).contains(&child)
}

/// Whether a table, or what inherits from it, may have rows: it has a file that is not empty, or is elsewhere.
pub fn has_content(table: Oid) -> bool {
    family(table, Mode::Read).into_iter().any(|table| {
        // SAFETY: `family` has locked it, so it is there while it is asked for its kind and size.
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

/// Whether a table is there and is a child of its own right, not a partition.
pub fn is_plain(table: Oid) -> bool {
    lookup::class(table).is_some_and(|class| !class.is_partition)
}
