//! The databases of the server, and whether the extension is in this one.

use std::ffi::CStr;

use pgrx::pg_sys::{self, Oid};

use crate::pg::session::lock;

/// The databases that one can connect to. Not templates as `template1`: what is in them is copied,
/// and a worker in one would be in the way of CREATE DATABASE.
pub fn connectable() -> Vec<Oid> {
    let mut databases = Vec::new();
    each_connectable(|database, _| databases.push(database));
    databases
}

/// Shows each of them with its name. Not by an index, which a process without a database may not have.
fn each_connectable(mut show: impl FnMut(Oid, &CStr)) {
    // SAFETY: a scan of a shared catalog with a snapshot of its own; each tuple is read before the
    // next one is fetched, and a name ends with a zero.
    unsafe {
        let catalog = pg_sys::table_open(
            pg_sys::DatabaseRelationId,
            pg_sys::AccessShareLock as pg_sys::LOCKMODE,
        );
        let scan = pg_sys::systable_beginscan(
            catalog,
            pg_sys::InvalidOid,
            false,
            std::ptr::null_mut(),
            0,
            std::ptr::null_mut(),
        );
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let form: pg_sys::Form_pg_database = pg_sys::GETSTRUCT(tuple).cast();
            // -2: a DROP DATABASE was interrupted.
            if (*form).datallowconn && !(*form).datistemplate && (*form).datconnlimit != -2 {
                show((*form).oid, CStr::from_ptr((*form).datname.data.as_ptr()));
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
    }
}

/// The database of this name, if one can connect to it and nobody is dropping or renaming it: who
/// connected now would wait for that, and fail.
pub fn connectable_by_name(name: &CStr) -> Option<Oid> {
    let find = || {
        let mut found = None;
        each_connectable(|database, its_name| {
            if its_name == name {
                found = Some(database);
            }
        });
        found
    };
    let database = find()?;
    // The lock that a session takes when it connects; the transaction's end releases it.
    let free = lock::try_database(database);
    find().filter(|&again| free && again == database)
}

/// Whether there is such a database.
pub fn is_there(database: Oid) -> bool {
    // SAFETY: a syscache look-up inside of a transaction, for any number; it keeps no pointer.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::DATABASEOID as i32;
        pg_sys::SearchSysCacheExists(cache, database.into(), 0.into(), 0.into(), 0.into())
    }
}

/// Whether the extension is in this database, and its own view over the caches is there: version
/// 0.1.0 had none. One of that name that somebody else made is not read: a worker reads it as a
/// superuser.
pub fn has_extension() -> bool {
    // SAFETY: look-ups in the catalogs, none of which raises an error for what is not there.
    unsafe {
        let extension = pg_sys::get_extension_oid(c"pgcache".as_ptr(), true);
        if extension == pg_sys::InvalidOid {
            return false;
        }
        let view = internal_relation(c"all_caches");
        view != pg_sys::InvalidOid
            && pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, view) == extension
    }
}

/// Whether the script runs that makes the extension, or updates it.
pub fn extension_is_being_made() -> bool {
    // SAFETY: variables of this process; a look-up by name that raises nothing.
    unsafe {
        pg_sys::creating_extension
            && pg_sys::CurrentExtensionObject
                == pg_sys::get_extension_oid(c"pgcache".as_ptr(), true)
    }
}

/// As [`has_extension`], for who reads that view in this transaction: nobody can put another one in its place
/// meanwhile. Not while somebody changes it.
pub fn keeps_extension() -> bool {
    let view = internal_relation(c"all_caches");
    view != pg_sys::InvalidOid && lock::try_relation(view, lock::Mode::Read) && has_extension()
}

/// A relation in schema pgcache; InvalidOid where it is not there.
pub fn internal_relation(name: &CStr) -> Oid {
    // SAFETY: syscache look-ups inside of a transaction, with C strings that live through them;
    // both give 0 for what is not there.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"pgcache".as_ptr(), true);
        match schema {
            pg_sys::InvalidOid => pg_sys::InvalidOid,
            schema => pg_sys::get_relname_relid(name.as_ptr(), schema),
        }
    }
}
