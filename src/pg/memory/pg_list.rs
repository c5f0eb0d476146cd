//! Copies Postgres lists into Rust vectors.

use pgrx::pg_sys;

/// Returns the OIDs in a list; NULL is the empty list.
///
/// # Safety
/// `list` is NULL or a list of OIDs.
pub unsafe fn oids(list: *mut pg_sys::List) -> Vec<pg_sys::Oid> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: a list has `length` cells, here each with an OID.
    unsafe {
        (0..(*list).length as usize)
            .map(|i| (*(*list).elements.add(i)).oid_value)
            .collect()
    }
}

/// Returns the elements of a list of pointers; NULL is the empty list.
///
/// # Safety
/// `list` is NULL or a list of pointers to `T`.
pub unsafe fn pointers<T>(list: *mut pg_sys::List) -> Vec<*mut T> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: a list has `length` cells, here each with a pointer.
    unsafe {
        (0..(*list).length as usize)
            .map(|i| (*(*list).elements.add(i)).ptr_value.cast())
            .collect()
    }
}
