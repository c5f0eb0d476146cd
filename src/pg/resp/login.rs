//! Reads from the catalogs the attributes of a role that logs in, and those of the served database. `resp::auth` uses
//! them to decide whether to admit a client.

use std::ffi::{CStr, CString};

use pgrx::pg_sys::{self, Datum, Oid};

use crate::pg::session::clock::Timestamp;
use crate::pg::session::database;
use crate::pg::version;

/// The attributes of a role that decide whether it may log in.
#[derive(Clone, Copy)]
pub struct Role {
    pub can_login: bool,
    pub is_superuser: bool,
    /// CONNECTION LIMIT; None means no limit.
    pub connections: Option<u32>,
    /// VALID UNTIL, the time at which the password expires.
    pub valid_until: Option<Timestamp>,
}

/// The attributes of a database that decide whether a client may connect.
pub struct Database {
    pub name: CString,
    pub takes_connections: bool,
    pub connections: Option<u32>,
}

/// Returns the attributes of a role; None if it was dropped.
pub fn role(role: Oid) -> Option<Role> {
    let cache = pg_sys::SysCacheIdentifier::AUTHOID as i32;
    // SAFETY: a syscache lookup within a transaction; the tuple is released after its fields have been copied.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, Datum::from(role));
        if tuple.is_null() {
            return None;
        }
        let form: pg_sys::Form_pg_authid = pg_sys::GETSTRUCT(tuple).cast();
        let mut is_null = false;
        let column = pg_sys::Anum_pg_authid_rolvaliduntil as pg_sys::AttrNumber;
        let until = pg_sys::SysCacheGetAttr(cache, tuple, column, &raw mut is_null);
        let facts = Role {
            can_login: (*form).rolcanlogin,
            is_superuser: (*form).rolsuper,
            connections: u32::try_from((*form).rolconnlimit).ok(),
            valid_until: (!is_null).then_some(until.value() as Timestamp),
        };
        pg_sys::ReleaseSysCache(tuple);
        Some(facts)
    }
}

/// Returns the attributes of this process's database; None if it was dropped.
pub fn served() -> Option<Database> {
    let cache = pg_sys::SysCacheIdentifier::DATABASEOID as i32;
    // SAFETY: as in `role`.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, Datum::from(database()));
        if tuple.is_null() {
            return None;
        }
        let form: pg_sys::Form_pg_database = pg_sys::GETSTRUCT(tuple).cast();
        let facts = Database {
            name: CStr::from_ptr((*form).datname.data.as_ptr()).to_owned(),
            takes_connections: (*form).datallowconn,
            connections: u32::try_from((*form).datconnlimit).ok(),
        };
        pg_sys::ReleaseSysCache(tuple);
        Some(facts)
    }
}

/// Returns whether the role may connect to this process's database.
pub fn may_connect(role: Oid) -> bool {
    // SAFETY: a syscache lookup within a transaction.
    unsafe { version::may_connect(role, database()) }
}

/// Returns the number of Postgres sessions of the role.
pub fn sessions_of(role: Oid) -> u32 {
    // SAFETY: counts in shared memory under the function's own lock.
    u32::try_from(unsafe { pg_sys::CountUserBackends(role) }).unwrap_or(0)
}

/// Returns the number of Postgres sessions in this process's database.
pub fn sessions() -> u32 {
    // SAFETY: as in `sessions_of`.
    u32::try_from(unsafe { pg_sys::CountDBConnections(database()) }).unwrap_or(0)
}

/// Returns whether role names are specific to a database (db_user_namespace), which pgcache does not support. The
/// setting was removed in version 17.
pub fn names_are_per_database() -> bool {
    // SAFETY: a lookup that returns NULL for a setting that does not exist; the text is read at once.
    unsafe {
        let value = pg_sys::GetConfigOption(c"db_user_namespace".as_ptr(), true, false);
        !value.is_null() && CStr::from_ptr(value) == c"on"
    }
}

/// The predefined role pg_monitor, whose members may see all sessions.
pub const MONITOR: Oid = Oid::from_u32(3373);
/// The predefined role pg_signal_backend, whose members may end sessions of other roles.
pub const SIGNAL_BACKEND: Oid = Oid::from_u32(4200);

/// Returns whether a role has the privileges of the role `of`; a superuser has the privileges of all roles.
pub fn has_role(role: Oid, of: Oid) -> bool {
    // SAFETY: syscache lookups within a transaction; neither role needs to exist.
    unsafe { pg_sys::has_privs_of_role(role, of) }
}

/// Returns whether a role owns this process's database, or has the privileges of its owner.
pub fn owns_served(role: Oid) -> bool {
    let cache = pg_sys::SysCacheIdentifier::DATABASEOID as i32;
    // SAFETY: as in `role`.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, Datum::from(database()));
        if tuple.is_null() {
            return false;
        }
        let form: pg_sys::Form_pg_database = pg_sys::GETSTRUCT(tuple).cast();
        let owner = (*form).datdba;
        pg_sys::ReleaseSysCache(tuple);
        has_role(role, owner)
    }
}
