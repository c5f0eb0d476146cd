//! Finds a single column of a cache's table, the key or the value, for callers such as row triggers that need nothing
//! else about the table.

use std::ffi::CString;

use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, Oid};

use super::marker::{attached_numbers, marked, marker};
use crate::pg::catalog::{name, own, relation};
use crate::pg::value::datum::ValueType;
use crate::pg::value::key_type::KeyType;

/// Returns the number and type of the key column, if its type is valid for a cache. The table need not be a valid
/// cache, because a row trigger calls this function, and any role may create the trigger on its own table.
///
/// # Safety
/// `table` must be open.
pub unsafe fn key_column(table: pg_sys::Relation) -> Option<(i16, KeyType)> {
    // SAFETY: the table is open, by the caller's contract.
    unsafe {
        match marker(table, |marker| attached_numbers(marker)) {
            Some([key, ..]) => {
                let column = attribute(table, key)?;
                Some((key, KeyType::of(column.atttypid, column.atttypmod)?))
            }
            None => {
                let key = relation::column_number((*table).rd_id, c"key")?;
                let descriptor = (*table).rd_att;
                let is_text = pg_sys::SPI_gettypeid(descriptor, i32::from(key)) == pg_sys::TEXTOID;
                is_text.then_some((key, KeyType::Text))
            }
        }
    }
}

/// Returns the number of the key column in a partition of a cache, and its type.
///
/// # Safety
/// `partition` must be open.
pub unsafe fn key_in_partition(partition: pg_sys::Relation) -> Option<(i16, KeyType)> {
    // SAFETY: the partition is open, by the caller's contract.
    unsafe {
        let Some(marked) = marked(partition) else {
            return key_column(partition);
        };
        let column = attribute(partition, marked.key)?;
        Some((marked.key, KeyType::of(column.atttypid, column.atttypmod)?))
    }
}

/// Returns the name of the key column, quoted for a statement. The caller holds a lock on the table.
pub fn key_name(table: Oid) -> Option<CString> {
    // SAFETY: the caller holds a lock on the table, so it can be opened, and stays open while its columns are read.
    unsafe {
        let open = pg_sys::relation_open(table, pg_sys::NoLock as i32);
        let key = key_column(open);
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        let name = relation::column_name(table, key?.0)?;
        Some(name::quote_identifier(&name))
    }
}

/// Returns the type of a cache's keys from the catalogs, without a lock on the cache. Returns text if the relation has
/// no marker, because `cache_create` created the table or because the relation is not a cache.
pub fn key_type(cache: Oid) -> KeyType {
    let numbers = relation::trigger_columns(cache, own::COLUMNS.oid());
    let key = numbers.and_then(|numbers| numbers.first().copied());
    // SAFETY: a syscache lookup, which returns 0 for a dropped column. A type modifier does not affect the spelling of
    // a key.
    let type_oid = key.map(|key| unsafe { pg_sys::get_atttype(cache, key) });
    let found = type_oid.and_then(|type_oid| KeyType::of(type_oid, -1));
    found.unwrap_or(KeyType::Text)
}

/// Returns the number of the value column, if its type is valid for a cache. Every valid type is a varlena.
///
/// # Safety
/// `table` must be open.
pub unsafe fn value_column(table: pg_sys::Relation) -> Option<i16> {
    // SAFETY: the table is open, by the caller's contract.
    unsafe {
        let value = match marker(table, |marker| attached_numbers(marker)) {
            Some([_, value, _]) => value,
            None => relation::column_number((*table).rd_id, c"value")?,
        };
        let value_oid = attribute(table, value)?.atttypid;
        ValueType::of_column(value_oid).map(|_| value)
    }
}

/// Returns the column with this number; None if it does not exist or was dropped.
///
/// # Safety
/// `table` must be open.
pub(super) unsafe fn attribute(
    table: pg_sys::Relation,
    number: i16,
) -> Option<pg_sys::FormData_pg_attribute> {
    // SAFETY: an open relation has a descriptor; the returned column is a copy.
    unsafe {
        let descriptor = PgTupleDesc::from_pg_unchecked((*table).rd_att);
        let column = descriptor.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        (!column.attisdropped).then_some(*column)
    }
}
