//! What changes the content of a table on which caches depend, and is no event of a row: its columns, its
//! partitions and children, its end.
//!
//! Told is what Postgres says through the object access hook:
//!
//! - A column is added, dropped, or gets another type or another expression. A rewrite counts if a column was altered
//!   before it in the same transaction; others (CLUSTER, VACUUM FULL, SET LOGGED) only move the rows.
//! - A partition or a child that is not empty comes or goes.
//! - The table is dropped, for whatever reason. Its triggers go before it, so these are kept in mind.
//! - A dependency's trigger was disabled and is enabled again: nobody knows what happened meanwhile.
//!
//! As for rows the table's owner must be allowed to delete from the cache. A DROP is not refused for want of
//! that: then the entries stay.

use std::collections::HashSet;

use pgrx::pg_sys::{self, Oid};

use super::dependency::{self, Found};
use super::trigger;
use crate::pg::catalog::{inheritance, lookup, relation};
use crate::pg::session::lock;
use crate::pg::session::transaction_local::Kept;
use crate::pg::{events, memory};

/// Postgres' numbers of pg_inherits and pg_attrdef.
pub const INHERITANCE: Oid = Oid::from_u32(2611);
pub const DEFAULTS: Oid = Oid::from_u32(2604);

/// What the transaction has done to tables that have, or had, a dependency's trigger.
#[derive(Default)]
struct Seen {
    /// Tables with an altered column.
    columns: HashSet<u32>,
    /// Dependencies whose trigger was dropped.
    dropped: Vec<Dropped>,
    /// A dependency's trigger was altered or dropped.
    triggers: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Dropped {
    table: Oid,
    cache: Oid,
}

thread_local! {
    static SEEN: Kept<Seen> = Kept::default();
}

/// The transaction has ended.
pub fn forget() {
    SEEN.with(|seen| seen.change(|seen| *seen = Seen::default()));
}

/// Every row may be another one for whoever reads the table: all that depends on it goes with the commit.
pub fn changed(table: Oid) {
    let mut told: Vec<Oid> = Vec::new();
    for Found { trigger, cache, .. } in dependencies(table) {
        if !told.contains(&cache) {
            dependency::require_rights(cache, dependency::declared_on(trigger).unwrap_or(table));
            events::tell(|observer| (observer.depended_on_all)(cache));
            memory::push(&mut told, cache);
        }
    }
}

/// The dependencies' triggers, asked for at every definition that changes somewhere.
fn dependencies(table: Oid) -> Vec<Found> {
    match lookup::class(table).is_some_and(|class| class.has_triggers) {
        true => dependency::on_table(table),
        false => Vec::new(),
    }
}

/// A column, or its expression, has been altered; its row in the catalog is new, and not visible yet.
pub fn column_altered(table: Oid, column: i32) {
    if dependencies(table).is_empty() {
        return;
    }
    SEEN.with(|seen| seen.change(|seen| seen.columns.insert(table.to_u32())));
    if lookup::column_is_another(table, column) {
        changed(table);
    }
}

/// The table itself has been altered: it may have another file.
pub fn altered(table: Oid) {
    let with_columns = SEEN.with(|seen| seen.look(|seen| seen.columns.contains(&table.to_u32())));
    if with_columns && lookup::file_is_another(table) {
        changed(table);
    }
}

/// A table, or one of its columns, is about to be dropped; what depended on it is gone already.
pub fn dropped(table: Oid, column: i32) {
    if column != 0 {
        changed(table);
    }
    let gone = SEEN.with(|seen| {
        seen.look(|seen| {
            let here = |dropped: &&Dropped| dropped.table == table;
            memory::collect(seen.dropped.iter().filter(here).copied())
        })
    });
    // What a session has for itself goes with it, or with a commit: then it is too late for statements.
    if gone.is_empty() || relation::is_temporary(table) {
        return;
    }
    let is_partition = !inheritance::is_plain(table);
    if column == 0 && is_partition && !inheritance::has_content(table) {
        return;
    }
    for Dropped { cache, .. } in gone {
        events::tell(|observer| (observer.depended_on_all)(cache));
    }
}

/// A trigger is about to be dropped.
pub fn trigger_dropped(trigger: Oid, table: Oid) {
    let Some(Found { cache, .. }) = find(trigger, table) else {
        return;
    };
    note_trigger();
    let declared_on = dependency::declared_on(trigger).unwrap_or(table);
    let dropped = Dropped { table, cache };
    if dependency::has_rights(cache, declared_on) {
        SEEN.with(|seen| {
            seen.change(|seen| {
                if !seen.dropped.contains(&dropped) {
                    memory::push(&mut seen.dropped, dropped);
                }
            });
        });
    }
}

/// A trigger has been altered; what is known of it is from before.
pub fn trigger_altered(trigger: Oid, table: Oid) {
    let found = find(trigger, table);
    if found.is_some() {
        note_trigger();
    }
    if let Some(Found { cache, .. }) = found.filter(|found| found.is_disabled) {
        let declared_on = dependency::declared_on(trigger).unwrap_or(table);
        dependency::require_rights(cache, declared_on);
        events::tell(|observer| (observer.depended_on_all)(cache));
    }
}

fn note_trigger() {
    SEEN.with(|seen| seen.change(|seen| seen.triggers = true));
}

/// Whether the transaction has altered or dropped a dependency's trigger, which tells nothing meanwhile.
pub fn triggers_changed() -> bool {
    SEEN.with(|seen| seen.look(|seen| seen.triggers))
}

fn find(trigger: Oid, table: Oid) -> Option<Found> {
    dependencies(table)
        .into_iter()
        .find(|found| found.trigger == trigger)
}

/// A partition or a child has come or gone.
pub fn inheritance_changed(child: Oid, parent: Oid) {
    if dependencies(parent).is_empty() {
        return;
    }
    if inheritance::has_content(child) {
        changed(parent);
    }
    events::tell(|observer| (observer.inherited)(child, parent));
}

/// Whether this session may be in the midst of a statement that has changed rows of the table: it has the lock of who
/// changes rows, and the table open. In a trigger nobody knows which changes are still to be told.
pub fn may_be_half_changed(table: Oid) -> bool {
    lock::changes_rows(table) && (relation::is_in_use(table) || trigger::is_in_one())
}

/// A default has been made: of a generated column it is what all its values are computed from.
pub fn default_made(table: Oid, column: i32) {
    if lookup::is_generated(table, column) {
        column_altered(table, column);
    }
}

/// The parent in an event of the catalog of inheritance.
///
/// # Safety
/// `arg` is what Postgres gives with OAT_POST_ALTER.
pub unsafe fn parent_in(arg: *mut std::ffi::c_void) -> Oid {
    // SAFETY: as the caller says.
    unsafe {
        let altered: *mut pg_sys::ObjectAccessPostAlter = arg.cast();
        match altered.is_null() {
            true => pg_sys::InvalidOid,
            false => (*altered).auxiliary_id,
        }
    }
}
