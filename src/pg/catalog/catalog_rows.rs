//! Reads the catalog rows of a table, both as they were before the running command and as this command has written
//! them.
//!
//! The syscache returns the rows from before the command until the next command begins. A scan with Postgres' "self"
//! snapshot returns the rows that the command wrote.

use pgrx::pg_sys::{self, Datum, Oid};

/// The fields of a table's row in pg_class that pgcache uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Class {
    pub file: Oid,
    pub has_triggers: bool,
    pub is_partition: bool,
}

/// The fields of a column's row in pg_attribute that pgcache uses.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Column {
    type_oid: Oid,
    generated: u8,
}

/// Returns a table's state before the running command; None if the table is dropped.
pub fn class(table: Oid) -> Option<Class> {
    // SAFETY: the tuple is released after it has been read.
    unsafe {
        let kind = pg_sys::SysCacheIdentifier::RELOID as i32;
        let tuple = pg_sys::SearchSysCache1(kind, Datum::from(table));
        if tuple.is_null() {
            return None;
        }
        let class = read_class(tuple);
        pg_sys::ReleaseSysCache(tuple);
        Some(class)
    }
}

/// Returns whether the running command has given a table a new file.
pub fn file_is_another(table: Oid) -> bool {
    let keys = [(
        pg_sys::Anum_pg_class_oid,
        pg_sys::F_OIDEQ,
        Datum::from(table),
    )];
    let catalog = pg_sys::RelationRelationId;
    let now = present(catalog, pg_sys::ClassOidIndexId, &keys, read_class);
    class(table).map(|class| class.file) != now.map(|class| class.file)
}

/// Returns whether the running command may change a column's values through the column's definition alone. A new file
/// of the table does not show every such change, because a change of type need not rewrite the table, and a virtual
/// column is not stored.
pub fn column_is_another(table: Oid, column: i32) -> bool {
    let before = column_before(table, column);
    let now = column_now(table, column);
    let is_virtual = now.is_some_and(|now| now.generated == b'v');
    is_virtual || before.map(|column| column.type_oid) != now.map(|column| column.type_oid)
}

/// Returns whether a column is generated, as the running command leaves it.
pub fn is_generated(table: Oid, column: i32) -> bool {
    column_now(table, column).is_some_and(|column| column.generated != 0)
}

fn column_before(table: Oid, column: i32) -> Option<Column> {
    // SAFETY: a syscache lookup in the caller's transaction; the tuple is not NULL when it is read, and is released
    // after the kept fields have been copied.
    unsafe {
        let tuple = pg_sys::SearchSysCache2(
            pg_sys::SysCacheIdentifier::ATTNUM as i32,
            Datum::from(table),
            Datum::from(column as i16),
        );
        if tuple.is_null() {
            return None;
        }
        let column = read_column(tuple);
        pg_sys::ReleaseSysCache(tuple);
        Some(column)
    }
}

fn column_now(table: Oid, column: i32) -> Option<Column> {
    let keys = [
        (
            pg_sys::Anum_pg_attribute_attrelid,
            pg_sys::F_OIDEQ,
            Datum::from(table),
        ),
        (
            pg_sys::Anum_pg_attribute_attnum,
            pg_sys::F_INT2EQ,
            Datum::from(column as i16),
        ),
    ];
    let catalog = pg_sys::AttributeRelationId;
    present(
        catalog,
        pg_sys::AttributeRelidNumIndexId,
        &keys,
        read_column,
    )
}

/// # Safety
/// `tuple` is a row of pg_class.
unsafe fn read_class(tuple: pg_sys::HeapTuple) -> Class {
    // SAFETY: the fixed part of every row of pg_class is a Form_pg_class, from which plain values
    // are copied.
    unsafe {
        let class: pg_sys::Form_pg_class = pg_sys::GETSTRUCT(tuple).cast();
        Class {
            file: (*class).relfilenode,
            has_triggers: (*class).relhastriggers,
            is_partition: (*class).relispartition,
        }
    }
}

/// # Safety
/// `tuple` is a row of pg_attribute.
unsafe fn read_column(tuple: pg_sys::HeapTuple) -> Column {
    // SAFETY: the fixed part of every row of pg_attribute is a Form_pg_attribute, from which plain
    // values are copied.
    unsafe {
        let column: pg_sys::Form_pg_attribute = pg_sys::GETSTRUCT(tuple).cast();
        Column {
            type_oid: (*column).atttypid,
            generated: (*column).attgenerated as u8,
        }
    }
}

/// Returns the result of `read` for the catalog row with these keys, even if the running command wrote the row; None if
/// no row has the keys. Takes at most two keys, each with a column's number, an equality function and a value.
fn present<R>(
    catalog: Oid,
    index: u32,
    keys: &[(u32, u32, Datum)],
    read: unsafe fn(pg_sys::HeapTuple) -> R,
) -> Option<R> {
    // SAFETY: a scan of a catalog by one of its indexes; the tuple is read before the scan ends. The static snapshot
    // "self" sees the rows that the running command wrote.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let open = pg_sys::table_open(catalog, lock);
        let mut scan_keys = [pg_sys::ScanKeyData::default(); 2];
        for (place, &(column, equality, value)) in scan_keys.iter_mut().zip(keys) {
            pg_sys::ScanKeyInit(
                place,
                column as i16,
                pg_sys::BTEqualStrategyNumber as u16,
                pg_sys::Oid::from_u32(equality),
                value,
            );
        }
        let scan = pg_sys::systable_beginscan(
            open,
            pg_sys::Oid::from_u32(index),
            true,
            &raw mut pg_sys::SnapshotSelfData,
            keys.len().min(scan_keys.len()) as i32,
            scan_keys.as_mut_ptr(),
        );
        let tuple = pg_sys::systable_getnext(scan);
        let found = (!tuple.is_null()).then(|| read(tuple));
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(open, lock);
        found
    }
}
