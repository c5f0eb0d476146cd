//! Reads the partition key of a table: its columns, and the functions that find a row's partition.

use pgrx::pg_sys;

/// The partition key of a table: the first fields of Postgres' PartitionKeyData, which pgrx does not declare.
#[repr(C)]
struct PartitionKeyData {
    #[cfg(feature = "pg15")]
    strategy: std::ffi::c_char,
    #[cfg(not(feature = "pg15"))]
    strategy: u32,
    partnatts: i16,
    partattrs: *mut pg_sys::AttrNumber,
    partexprs: *mut pg_sys::List,
    partopfamily: *mut pg_sys::Oid,
    partopcintype: *mut pg_sys::Oid,
    partsupfunc: *mut pg_sys::FmgrInfo,
    partcollation: *mut pg_sys::Oid,
    parttypid: *mut pg_sys::Oid,
    parttypmod: *mut i32,
    // pgcache does not use the later fields.
}

/// The fields of a partition key that pgcache reads. Each array has one element for each column of the key.
#[derive(Clone, Copy)]
pub struct PartitionKey {
    pub columns: i16,
    /// The number of the first column; 0 if it is an expression.
    pub column: pg_sys::AttrNumber,
    /// The types of the columns.
    pub kind: *const pg_sys::Oid,
    /// The type modifiers of the columns.
    pub modifier: *const i32,
    /// The functions that hash or compare the columns.
    pub functions: *mut pg_sys::FmgrInfo,
    pub collations: *mut pg_sys::Oid,
}

/// Returns the partition key of a table; None for a table that is not partitioned.
///
/// # Safety
/// `relation` must be open as long as the result is used.
pub unsafe fn partition_key(relation: pg_sys::Relation) -> Option<PartitionKey> {
    unsafe extern "C-unwind" {
        fn RelationGetPartitionKey(relation: pg_sys::Relation) -> *const PartitionKeyData;
    }
    // SAFETY: the relation is open; the key belongs to the relation, and stays as long. The first call builds the key,
    // and may raise.
    unsafe {
        let key = pg_sys::ffi::pg_guard_ffi_boundary(|| RelationGetPartitionKey(relation));
        if key.is_null() || (*key).partnatts < 1 {
            return None;
        }
        Some(PartitionKey {
            columns: (*key).partnatts,
            column: *(*key).partattrs,
            kind: (*key).parttypid,
            modifier: (*key).parttypmod,
            functions: (*key).partsupfunc,
            collations: (*key).partcollation,
        })
    }
}
