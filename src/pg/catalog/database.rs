//! Lists the databases of the server, and checks whether the current database has the extension.

use std::ffi::CStr;

use pgrx::pg_sys::{self, Oid};

use crate::pg::session::lock;

/// Returns the databases that accept connections. Excludes templates such as `template1`, because a worker that is
/// connected to a template would block CREATE DATABASE, which copies the template.
pub fn connectable() -> Vec<Oid> {
    let mut databases = Vec::new();
    each_connectable(|database, _| databases.push(database));
    databases
}

/// Calls `show` with the OID and the name of each database that [`connectable`] returns. Scans without an index,
/// because a process that is not connected to a database cannot use one.
fn each_connectable(mut show: impl FnMut(Oid, &CStr)) {
    // SAFETY: a scan of a shared catalog with its own snapshot. Each tuple is read before the next one is fetched, and
    // a name ends with a zero.
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
            // -2 means that a DROP DATABASE was interrupted.
            if (*form).datallowconn && !(*form).datistemplate && (*form).datconnlimit != -2 {
                show((*form).oid, CStr::from_ptr((*form).datname.data.as_ptr()));
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
    }
}

/// Returns the database of this name if it accepts connections and no session is dropping or renaming it. A session
/// that connected during a DROP or RENAME would wait for the end of the command, and fail.
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
    // This is the lock that a connecting session takes. The end of the transaction releases it.
    let free = lock::try_database(database);
    find().filter(|&again| free && again == database)
}

/// Returns whether a database exists.
pub fn is_there(database: Oid) -> bool {
    // SAFETY: a syscache lookup inside a transaction. It accepts any OID, and keeps no pointer.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::DATABASEOID as i32;
        pg_sys::SearchSysCacheExists(cache, database.into(), 0.into(), 0.into(), 0.into())
    }
}

/// Returns whether this database has the extension and its view `all_caches`, which version 0.1.0 lacked. The view
/// counts only if it belongs to the extension, because a worker reads it as a superuser.
pub fn has_extension() -> bool {
    // SAFETY: lookups in the catalogs, none of which raises an error for a missing object.
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

/// Returns whether the script that creates or updates the extension is running.
pub fn extension_is_being_made() -> bool {
    // SAFETY: reads variables of this process. The lookup by name raises no error for a missing extension.
    unsafe {
        pg_sys::creating_extension
            && pg_sys::CurrentExtensionObject
                == pg_sys::get_extension_oid(c"pgcache".as_ptr(), true)
    }
}

/// Locks the view `all_caches` for a transaction that reads it, so that no other session can replace the view before
/// the transaction ends. Returns [`has_extension`], or false if another session is changing the view.
pub fn keeps_extension() -> bool {
    let view = internal_relation(c"all_caches");
    view != pg_sys::InvalidOid && lock::try_relation(view, lock::Mode::Read) && has_extension()
}

/// Returns a relation in schema pgcache, or InvalidOid if it does not exist.
pub fn internal_relation(name: &CStr) -> Oid {
    // SAFETY: syscache lookups inside a transaction, with C strings that outlive them. Both return 0 for a missing
    // object.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"pgcache".as_ptr(), true);
        match schema {
            pg_sys::InvalidOid => pg_sys::InvalidOid,
            schema => pg_sys::get_relname_relid(name.as_ptr(), schema),
        }
    }
}
