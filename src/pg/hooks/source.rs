//! Reports the changes of a source table that fire no row trigger: changes of its columns, partitions or children, and
//! DROP. Entries of a cache depend on a source table.
//!
//! The object access hook reports these events:
//!
//! - A column is added, dropped, or gets another type or another expression. A rewrite of the table counts only if the
//!   same transaction altered a column before it; other rewrites (CLUSTER, VACUUM FULL, SET LOGGED) only move the rows.
//! - A partition or child that is not empty is added or removed.
//! - The table is dropped, for any reason. Postgres drops its triggers first, so this module remembers the dropped
//!   triggers.
//! - A dependency's trigger that was disabled, or enabled only for some sessions, is enabled again. It has missed
//!   changes in between.
//!
//! As for row changes, the table's owner must be allowed to delete from the cache. An owner without this right may
//! still drop the table, but the entries stay.

use std::collections::HashSet;

use pgrx::pg_sys::{self, Oid};

use super::dependency::{self, DependencyTrigger};
use crate::pg::catalog::{catalog_rows, inheritance, relation};
use crate::pg::hooks::{pre_commit_portal, trigger};
use crate::pg::session::lock;
use crate::pg::session::transaction_local::TransactionLocal;
use crate::pg::{events, memory};

/// The OID of pg_inherits, fixed in Postgres' catalog headers.
pub const INHERITANCE: Oid = Oid::from_u32(2611);
/// The OID of pg_attrdef, fixed in Postgres' catalog headers.
pub const DEFAULTS: Oid = Oid::from_u32(2604);

/// Changes of this transaction to tables that have, or had, a dependency's trigger.
#[derive(Default)]
struct Seen {
    /// Tables with an altered column.
    columns: HashSet<u32>,
    /// Dependencies whose trigger was dropped.
    dropped: Vec<Dropped>,
    /// Whether a dependency's trigger was altered or dropped.
    triggers: bool,
    /// Tables with an altered dependency trigger.
    altered: Vec<Oid>,
    /// Triggers that this transaction has created and never altered, so they have missed no change.
    made: HashSet<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Dropped {
    table: Oid,
    cache: Oid,
}

thread_local! {
    static SEEN: TransactionLocal<Seen> = TransactionLocal::default();
}

/// Forgets the changes at the end of the transaction.
pub fn forget() {
    SEEN.with(|seen| seen.change(|seen| *seen = Seen::default()));
}

/// Reports that any row of the table may have changed, so that the commit invalidates all entries that depend on the
/// table. Raises 42501 if the table's owner may not delete from a cache.
pub fn changed(table: Oid) {
    let mut emitted: Vec<Oid> = Vec::new();
    for DependencyTrigger { trigger, cache, .. } in dependencies(table) {
        if !emitted.contains(&cache) {
            dependency::require_rights(cache, dependency::require_declared_on(trigger));
            events::emit(|observer| (observer.depended_on_all)(cache));
            memory::push(&mut emitted, cache);
        }
    }
}

/// Returns the dependencies' triggers on a table. Postgres' hook calls this whenever any definition changes, so a table
/// without triggers must cost only one syscache lookup.
fn dependencies(table: Oid) -> Vec<DependencyTrigger> {
    match catalog_rows::class(table).is_some_and(|class| class.has_triggers) {
        true => dependency::on_table(table),
        false => Vec::new(),
    }
}

/// Records an altered column or column expression. Its new catalog row is not yet visible.
pub fn column_altered(table: Oid, column: i32) {
    if dependencies(table).is_empty() {
        return;
    }
    SEEN.with(|seen| seen.change(|seen| seen.columns.insert(table.to_u32())));
    if catalog_rows::column_is_another(table, column) {
        changed(table);
    }
}

/// Handles an ALTER of the table itself: if the transaction has altered a column and the table has a new file, the
/// table was rewritten, which counts as a change.
pub fn altered(table: Oid) {
    let with_columns = SEEN.with(|seen| seen.look(|seen| seen.columns.contains(&table.to_u32())));
    if with_columns && catalog_rows::file_is_another(table) {
        changed(table);
    }
}

/// Reports that a table, or one of its columns, is about to be dropped. The objects that depended on it are already
/// gone.
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
    // Postgres may drop a temporary table at the end of the session or in a commit, where no statement can run.
    if gone.is_empty() || relation::is_temporary(table) {
        return;
    }
    let is_partition = !inheritance::is_plain(table);
    if column == 0 && is_partition && !inheritance::has_content(table) {
        return;
    }
    for Dropped { cache, .. } in gone {
        events::emit(|observer| (observer.depended_on_all)(cache));
    }
}

/// Records that a trigger is about to be dropped.
pub fn trigger_dropped(trigger: Oid, table: Oid) {
    let Some(DependencyTrigger { cache, .. }) = find(trigger, table) else {
        return;
    };
    note_trigger();
    let dropped = Dropped { table, cache };
    // Postgres drops copies before their originals, so the catalog still shows the table on which the trigger was
    // declared.
    if dependency::declared_on(trigger).is_some_and(|table| dependency::has_rights(cache, table)) {
        SEEN.with(|seen| {
            seen.change(|seen| {
                if !seen.dropped.contains(&dropped) {
                    memory::push(&mut seen.dropped, dropped);
                }
            });
        });
    }
}

/// Records that a trigger was created without replacing another one.
pub fn trigger_made(trigger: Oid) {
    SEEN.with(|seen| seen.change(|seen| seen.made.insert(trigger.to_u32())));
}

/// Records that a trigger was altered. The relcache still shows the trigger's former state.
pub fn trigger_altered(trigger: Oid, table: Oid) {
    let is_new = SEEN.with(|seen| seen.change(|seen| seen.made.remove(&trigger.to_u32())));
    let found = find(trigger, table);
    if found.is_some() {
        note_trigger();
        SEEN.with(|seen| {
            seen.change(|seen| {
                if !seen.altered.contains(&table) {
                    memory::push(&mut seen.altered, table);
                }
            });
        });
        pre_commit_portal::request();
    }
    if let Some(DependencyTrigger { cache, .. }) = found.filter(|found| !is_new && !found.is_always)
    {
        dependency::require_rights(cache, dependency::require_declared_on(trigger));
        events::emit(|observer| (observer.depended_on_all)(cache));
    }
}

fn note_trigger() {
    SEEN.with(|seen| seen.change(|seen| seen.triggers = true));
}

/// Returns whether any table has an altered dependency trigger.
pub fn has_altered() -> bool {
    SEEN.with(|seen| seen.look(|seen| !seen.altered.is_empty()))
}

/// Removes one table from the list of tables with an altered dependency trigger, and returns it; None if the list is
/// empty.
pub fn take_altered() -> Option<Oid> {
    match has_altered() {
        true => SEEN.with(|seen| seen.change(|seen| seen.altered.pop())),
        false => None,
    }
}

/// Returns whether the transaction has altered or dropped a dependency's trigger. Such a trigger may have missed
/// changes.
pub fn triggers_changed() -> bool {
    SEEN.with(|seen| seen.look(|seen| seen.triggers))
}

fn find(trigger: Oid, table: Oid) -> Option<DependencyTrigger> {
    dependencies(table)
        .into_iter()
        .find(|found| found.trigger == trigger)
}

/// Reports that a partition or child was added or removed.
pub fn inheritance_changed(child: Oid, parent: Oid) {
    if dependencies(parent).is_empty() {
        return;
    }
    if inheritance::has_content(child) {
        changed(parent);
    }
    events::emit(|observer| (observer.inherited)(child, parent));
}

/// Returns whether this session may be in the middle of a statement that changes rows of the table, so that the
/// triggers for some changes have yet to run. This is possible if the session holds a writer's lock, and has the table
/// open or is inside a trigger.
pub fn may_be_half_changed(table: Oid) -> bool {
    lock::changes_rows(table) && (relation::is_in_use(table) || trigger::is_in_one())
}

/// Handles a new default of a column. The default of a generated column is the expression that gives all its values, so
/// a new one counts as an altered column.
pub fn default_made(table: Oid, column: i32) {
    if catalog_rows::is_generated(table, column) {
        column_altered(table, column);
    }
}

/// Returns the parent that an event of the inheritance catalog names; InvalidOid if it names none.
///
/// # Safety
/// `arg` is the argument that Postgres passes with OAT_POST_ALTER.
pub unsafe fn parent_in(arg: *mut std::ffi::c_void) -> Oid {
    // SAFETY: with OAT_POST_ALTER the argument is NULL or an ObjectAccessPostAlter of Postgres, from which one value is
    // copied.
    unsafe {
        let altered: *mut pg_sys::ObjectAccessPostAlter = arg.cast();
        match altered.is_null() {
            true => pg_sys::InvalidOid,
            false => (*altered).auxiliary_id,
        }
    }
}
