//! Reads a relation's properties from the catalogs: name, kind, owner, columns and triggers.

use std::ffi::{CStr, CString};
use std::num::NonZeroUsize;

use pgrx::PgLogLevel;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;

use crate::error::Error;
use crate::pg::value::datum::varlena_bytes;

/// Returns the triggers of a relation, including those of foreign keys, in place in the relcache.
///
/// # Safety
/// While the result is used, `relation` must be open and no catalog may be read. A catalog read may process an
/// invalidation message for the relation; Postgres then reads the triggers again and frees the former list, even while
/// the relation is open. An ANALYZE in another session is enough to send such a message.
pub(in crate::pg) unsafe fn triggers<'r>(relation: pg_sys::Relation) -> &'r [pg_sys::Trigger] {
    // SAFETY: the relation is open, and its triggers stay, by the caller's contract.
    unsafe { all_of((*relation).trigdesc) }
}

/// Returns copies of the triggers in the current memory context, for callers that read catalogs while they use the
/// triggers.
///
/// # Safety
/// `relation` must be open; the memory context must live as long as the result is used.
pub(in crate::pg) unsafe fn copied_triggers<'r>(
    relation: pg_sys::Relation,
) -> &'r [pg_sys::Trigger] {
    // SAFETY: the relation is open, by the caller's contract. The copy, NULL for a relation without triggers, reads
    // no catalog.
    unsafe { all_of(pg_sys::CopyTriggerDesc((*relation).trigdesc)) }
}

/// # Safety
/// `descriptor` is NULL, or a description of triggers that stays while the result is used.
unsafe fn all_of<'r>(descriptor: *const pg_sys::TriggerDesc) -> &'r [pg_sys::Trigger] {
    // SAFETY: the description has numtriggers triggers, and stays by the caller's contract.
    unsafe {
        match descriptor.is_null() {
            true => &[],
            false => std::slice::from_raw_parts(
                (*descriptor).triggers,
                (*descriptor).numtriggers as usize,
            ),
        }
    }
}

/// Returns the quoted `schema.name` of a relation that the caller has locked. Raises 42P01 if the session itself has
/// dropped the relation, which its lock does not prevent; for example, a statement of pgcache may fire an event trigger
/// that drops it.
pub fn qualified(relation: pg_sys::Oid) -> CString {
    spelled(relation).unwrap_or_else(|| {
        ErrorReport::from(Error::NoSuchRelation(relation.to_u32())).report(PgLogLevel::ERROR);
        CString::default()
    })
}

/// Returns the quoted `schema.name` of a relation, or None if it has been dropped.
pub fn spelled(relation: pg_sys::Oid) -> Option<CString> {
    // SAFETY: syscache lookups, each of which returns NULL or a palloc'd copy: another session may drop the relation
    // between two lookups.
    unsafe {
        let name = pg_sys::get_rel_name(relation);
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation));
        (!name.is_null() && !schema.is_null())
            .then(|| CStr::from_ptr(pg_sys::quote_qualified_identifier(schema, name)).to_owned())
    }
}

/// Returns the length of the relation's name in bytes; 0 if the relation is dropped.
pub fn name_length(relation: pg_sys::Oid) -> usize {
    // SAFETY: a syscache lookup; the name is a copy that ends with a NUL byte.
    unsafe {
        let name = pg_sys::get_rel_name(relation);
        match name.is_null() {
            true => 0,
            false => CStr::from_ptr(name).count_bytes(),
        }
    }
}

/// Returns whether the relation exists, as of the messages that this session has processed.
pub fn is_there(relation: pg_sys::Oid) -> bool {
    // SAFETY: a syscache lookup, which returns 0 for a dropped relation.
    unsafe { pg_sys::get_rel_relkind(relation) != 0 }
}

/// Returns whether the relation can have pgcache's row triggers: an ordinary or a partitioned table.
pub fn is_table(relation: pg_sys::Oid) -> bool {
    // SAFETY: a syscache lookup inside a transaction, which returns 0 for a dropped relation.
    let kind = unsafe { pg_sys::get_rel_relkind(relation) } as u8;
    kind == pg_sys::RELKIND_RELATION || kind == pg_sys::RELKIND_PARTITIONED_TABLE
}

/// Returns whether the relation is a partitioned table, which stores no rows itself.
pub fn is_partitioned(relation: pg_sys::Oid) -> bool {
    // SAFETY: a syscache lookup inside a transaction, which returns 0 for a dropped relation.
    unsafe { pg_sys::get_rel_relkind(relation) as u8 == pg_sys::RELKIND_PARTITIONED_TABLE }
}

/// Returns a type's name for an error message.
pub fn type_name(type_oid: pg_sys::Oid) -> String {
    // SAFETY: the type exists; the result is palloc'd.
    unsafe {
        CStr::from_ptr(pg_sys::format_type_be(type_oid))
            .to_string_lossy()
            .into_owned()
    }
}

/// Returns the relation's bare name for an error message; empty if the relation is dropped.
pub fn display_name(relation: pg_sys::Oid) -> String {
    // SAFETY: get_rel_name returns NULL or a palloc'd copy.
    unsafe {
        let name = pg_sys::get_rel_name(relation);
        match name.is_null() {
            true => String::new(),
            false => crate::pg::encoding::decode(CStr::from_ptr(name).to_bytes()),
        }
    }
}

/// Returns the role that owns the relation; InvalidOid if the relation is dropped.
pub fn owner(relation: pg_sys::Oid) -> pg_sys::Oid {
    of_class(relation, |class| class.relowner).unwrap_or(pg_sys::InvalidOid)
}

/// Returns whether the relation's policies apply to its owner, too.
pub fn forces_row_security(relation: pg_sys::Oid) -> bool {
    of_class(relation, |class| class.relforcerowsecurity).unwrap_or(false)
}

/// Returns the field that `pick` reads from the relation's pg_class row; None if the relation is dropped.
fn of_class<R>(
    relation: pg_sys::Oid,
    pick: impl FnOnce(&pg_sys::FormData_pg_class) -> R,
) -> Option<R> {
    // SAFETY: the tuple is released after its field has been copied; nothing in between can fail.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::RELOID as i32,
            pg_sys::Datum::from(relation),
        );
        if tuple.is_null() {
            return None;
        }
        let class: pg_sys::Form_pg_class = pg_sys::GETSTRUCT(tuple).cast();
        let picked = pick(&*class);
        pg_sys::ReleaseSysCache(tuple);
        Some(picked)
    }
}

/// Returns the relation's kind for error messages: table, view, sequence ...
pub fn object_type(relation: pg_sys::Oid) -> pg_sys::ObjectType::Type {
    // SAFETY: a syscache lookup; relkind 0 (dropped) counts as a table.
    unsafe { pg_sys::get_relkind_objtype(pg_sys::get_rel_relkind(relation)) }
}

/// Returns the relation's persistence from pg_class (permanent, unlogged or temporary); None if the relation is
/// dropped.
pub fn persistence(relation: pg_sys::Oid) -> Option<u8> {
    of_class(relation, |class| class.relpersistence as u8)
}

/// Returns whether the relation is a temporary table of another session, which only that session can read.
pub fn is_temporary_elsewhere(relation: pg_sys::Oid) -> bool {
    // SAFETY: syscache lookups; a dropped relation has no temporary schema.
    unsafe { pg_sys::isOtherTempNamespace(pg_sys::get_rel_namespace(relation)) }
}

/// Returns whether the relation is temporary, in any session.
pub fn is_temporary(relation: pg_sys::Oid) -> bool {
    // SAFETY: syscache lookups inside a transaction; a dropped relation has no temporary schema.
    unsafe { pg_sys::isAnyTempNamespace(pg_sys::get_rel_namespace(relation)) }
}

/// Returns whether the relation is Postgres' own: created by initdb, or in pg_catalog.
pub fn is_of_postgres(relation: pg_sys::Oid) -> bool {
    // SAFETY: syscache lookups inside a transaction; 0 for a dropped relation.
    let schema = unsafe { pg_sys::get_rel_namespace(relation) };
    let of_catalogs = pg_sys::Oid::from_u32(pg_sys::PG_CATALOG_NAMESPACE);
    relation.to_u32() < pg_sys::FirstNormalObjectId || schema == of_catalogs
}

/// Returns whether the relation belongs to an extension.
pub fn is_of_an_extension(relation: pg_sys::Oid) -> bool {
    // SAFETY: a scan of pg_depend inside a transaction.
    unsafe {
        pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, relation) != pg_sys::InvalidOid
    }
}

/// Returns whether the relation is a partition of another table.
pub fn is_partition(relation: pg_sys::Oid) -> bool {
    // SAFETY: a syscache lookup inside a transaction; false for a dropped relation.
    unsafe { pg_sys::get_rel_relispartition(relation) }
}

/// Returns whether the relation has a column with this name that is not a system column.
pub fn has_column(relation: pg_sys::Oid, name: &CStr) -> bool {
    column_number(relation, name).is_some_and(|number| number > 0)
}

/// Decodes a name for an error message.
pub fn decoded(name: &CStr) -> String {
    crate::pg::encoding::decode(name.to_bytes())
}

/// Returns whether a running statement of this session has the relation open. The caller holds a lock on the relation.
pub fn is_in_use(relation: pg_sys::Oid) -> bool {
    // SAFETY: the lock keeps the relation; it is open between open and close.
    unsafe {
        let open = pg_sys::try_relation_open(relation, pg_sys::NoLock as i32);
        !open.is_null() && {
            let in_use = (*open).rd_refcnt > 1;
            pg_sys::relation_close(open, pg_sys::NoLock as i32);
            in_use
        }
    }
}

pub fn is_view(relation: pg_sys::Oid) -> bool {
    // SAFETY: a syscache lookup; relkind 0 (dropped) is not a view.
    unsafe { pg_sys::get_rel_relkind(relation) == pg_sys::RELKIND_VIEW as i8 }
}

/// A row of pg_trigger.
pub struct TriggerRow {
    pub table: pg_sys::Oid,
    pub function: pg_sys::Oid,
    /// For a partition's copy, the parent's trigger from which it was copied; otherwise InvalidOid.
    pub parent: pg_sys::Oid,
    /// Whether no command has updated the row or replaced the trigger since its INSERT.
    pub is_first_version: bool,
}

/// Returns a trigger by its OID. Also finds a trigger that the running command has created.
pub fn trigger_row(trigger: pg_sys::Oid) -> Option<TriggerRow> {
    let (column, index) = (pg_sys::Anum_pg_trigger_oid, pg_sys::TriggerOidIndexId);
    first_trigger(column, trigger, index, |row| {
        Some(TriggerRow {
            is_first_version: u32::from(row.mask) & pg_sys::HEAP_UPDATED == 0,
            table: row.form.tgrelid,
            function: row.form.tgfoid,
            parent: row.form.tgparentid,
        })
    })
}

/// Returns the table on which a trigger was created; for a partition's copy, the table of the original. Returns None if
/// the trigger or its original does not exist.
pub fn made_on(trigger: pg_sys::Oid) -> Option<pg_sys::Oid> {
    let mut row = trigger_row(trigger)?;
    while row.parent != pg_sys::InvalidOid {
        row = trigger_row(row.parent)?;
    }
    Some(row.table)
}

/// Returns whether a table has a trigger that calls `function` and is not a copy of a parent's trigger. Takes no lock
/// on the table.
pub fn has_trigger(table: pg_sys::Oid, function: pg_sys::Oid) -> bool {
    let column = pg_sys::Anum_pg_trigger_tgrelid;
    let index = pg_sys::TriggerRelidNameIndexId;
    first_trigger(column, table, index, |row| {
        let is_own = row.form.tgparentid == pg_sys::InvalidOid;
        (row.form.tgfoid == function && is_own).then_some(())
    })
    .is_some()
}

/// Returns the ancestor of a partition that has the trigger on `function`, found through the partition's copy of this
/// trigger. Takes no lock on either table.
pub fn above(partition: pg_sys::Oid, function: pg_sys::Oid) -> Option<pg_sys::Oid> {
    let column = pg_sys::Anum_pg_trigger_tgrelid;
    let index = pg_sys::TriggerRelidNameIndexId;
    let parent = first_trigger(column, partition, index, |row| {
        let is_copied = row.form.tgparentid != pg_sys::InvalidOid;
        (row.form.tgfoid == function && is_copied).then_some(row.form.tgparentid)
    })?;
    made_on(parent)
}

/// Returns the arguments of a table's trigger that calls `function`, even if the trigger is a copy of a parent's. Takes
/// no lock on the table.
pub fn trigger_arguments(table: pg_sys::Oid, function: pg_sys::Oid) -> Option<Vec<Vec<u8>>> {
    let column = pg_sys::Anum_pg_trigger_tgrelid;
    let index = pg_sys::TriggerRelidNameIndexId;
    first_trigger(column, table, index, |row| {
        (row.form.tgfoid == function).then(|| {
            let arguments = row.arguments.split(|&byte| byte == 0);
            arguments
                .take(row.form.tgnargs.max(0) as usize)
                .map(<[u8]>::to_vec)
                .collect()
        })
    })
}

/// Returns the columns of a table's trigger on `function`. Takes no lock on the table.
pub fn trigger_columns(table: pg_sys::Oid, function: pg_sys::Oid) -> Option<Vec<i16>> {
    let column = pg_sys::Anum_pg_trigger_tgrelid;
    let index = pg_sys::TriggerRelidNameIndexId;
    first_trigger(column, table, index, |row| {
        // SAFETY: an int2vector, the last of the columns that a row of pg_trigger always has, holds as many numbers
        // as its length says.
        (row.form.tgfoid == function).then(|| unsafe {
            let columns = &row.form.tgattr;
            columns
                .values
                .as_slice(columns.dim1.max(0) as usize)
                .to_vec()
        })
    })
}

/// Returns whether one of the columns of the trigger on `function` is virtual. Takes no lock.
pub fn has_virtual_column(table: pg_sys::Oid, function: pg_sys::Oid) -> bool {
    let columns = trigger_columns(table, function).unwrap_or_default();
    // SAFETY: syscache lookups; the first checks that the column exists, which the second needs, and the second reads
    // the entry that the first has found.
    columns.into_iter().any(|column| unsafe {
        pg_sys::get_atttype(table, column) != pg_sys::InvalidOid
            && pg_sys::get_attgenerated(table, column) as u8 == b'v'
    })
}

/// A row of pg_trigger while a scan reads it.
struct FoundTrigger<'r> {
    form: &'r pg_sys::FormData_pg_trigger,
    /// The row's `t_infomask`.
    mask: u16,
    /// The column `tgargs`, in which each argument ends with a NUL byte.
    arguments: &'r [u8],
}

/// Returns the first result of `pick` over the pg_trigger rows with this OID in `column`, which `index` covers.
fn first_trigger<R>(
    column: u32,
    oid: pg_sys::Oid,
    index: u32,
    pick: impl Fn(&FoundTrigger) -> Option<R>,
) -> Option<R> {
    // SAFETY: a scan of pg_trigger by an index over this column; each tuple is read before the next is fetched; its
    // column tgargs is a bytea. The static snapshot "self" sees the rows that the running command wrote.
    unsafe {
        let catalog = pg_sys::table_open(
            pg_sys::TriggerRelationId,
            pg_sys::AccessShareLock as pg_sys::LOCKMODE,
        );
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &mut key,
            column as i16,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::Oid::from_u32(pg_sys::F_OIDEQ),
            pg_sys::Datum::from(oid),
        );
        let scan = pg_sys::systable_beginscan(
            catalog,
            pg_sys::Oid::from_u32(index),
            true,
            &raw mut pg_sys::SnapshotSelfData,
            1,
            &mut key,
        );
        let mut found = None;
        while found.is_none() {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let form: pg_sys::Form_pg_trigger = pg_sys::GETSTRUCT(tuple).cast();
            let arguments = NonZeroUsize::new(pg_sys::Anum_pg_trigger_tgargs as usize)
                .and_then(|column| pgrx::heap_getattr_raw(tuple, column, (*catalog).rd_att))
                .map(|bytes| pg_sys::pg_detoast_datum(bytes.cast_mut_ptr()));
            found = pick(&FoundTrigger {
                form: &*form,
                mask: (*(*tuple).t_data).t_infomask,
                arguments: arguments.map_or(&[][..], |bytes| varlena_bytes(bytes.into())),
            });
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        found
    }
}

/// Returns whether an existing column can have a DEFAULT, because it is not generated.
pub fn takes_default(relation: pg_sys::Oid, column: i16) -> bool {
    // SAFETY: a syscache lookup inside a transaction, of an existing column.
    unsafe { pg_sys::get_attgenerated(relation, column) == 0 }
}

pub(in crate::pg) fn column_name(relation: pg_sys::Oid, number: i16) -> Option<CString> {
    // SAFETY: a syscache lookup, which returns NULL or a palloc'd copy.
    unsafe {
        let name = pg_sys::get_attname(relation, number, true);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_owned())
    }
}

/// Returns the number of the column with this name; None if no such column exists.
pub(in crate::pg) fn column_number(relation: pg_sys::Oid, name: &CStr) -> Option<i16> {
    // SAFETY: a syscache lookup that copies its result; 0 for a column that does not exist or was dropped.
    let number = unsafe { pg_sys::get_attnum(relation, name.as_ptr()) };
    (number != pg_sys::InvalidAttrNumber as i16).then_some(number)
}

/// Returns the number of blocks of the table itself. The caller holds a lock on it.
pub fn blocks(table: pg_sys::Oid) -> u32 {
    // SAFETY: the relation is open while its size is read.
    unsafe {
        let open = pg_sys::table_open(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        let blocks =
            pg_sys::RelationGetNumberOfBlocksInFork(open, pg_sys::ForkNumber::MAIN_FORKNUM);
        pg_sys::table_close(open, pg_sys::NoLock as pg_sys::LOCKMODE);
        blocks
    }
}
