//! What the catalogs say of a role that logs in, and of the database that is served.

use std::ffi::{CStr, CString};

use pgrx::pg_sys::{self, Datum, Oid};

use crate::pg::session::clock::Timestamp;
use crate::pg::session::database;
use crate::pg::version;

/// What decides whether a role may come in.
#[derive(Clone, Copy)]
pub struct Role {
    pub can_login: bool,
    pub is_superuser: bool,
    /// CONNECTION LIMIT; None: there is none.
    pub connections: Option<u32>,
    /// VALID UNTIL, which is about the password.
    pub valid_until: Option<Timestamp>,
}

/// The same of a database.
pub struct Database {
    pub name: CString,
    pub takes_connections: bool,
    pub connections: Option<u32>,
}

/// The role's facts; None where it is gone.
pub fn role(role: Oid) -> Option<Role> {
    let cache = pg_sys::SysCacheIdentifier::AUTHOID as i32;
    // SAFETY: a syscache look-up inside of a transaction; the tuple is released after what is kept
    // has been copied.
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

/// This process' database; None where it is gone.
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

/// Whether the role may connect to this process' database.
pub fn may_connect(role: Oid) -> bool {
    // SAFETY: a syscache look-up inside of a transaction.
    unsafe { version::may_connect(role, database()) }
}

/// Sessions of Postgres that the role has now.
pub fn sessions_of(role: Oid) -> u32 {
    // SAFETY: counts in shared memory under a lock of its own.
    u32::try_from(unsafe { pg_sys::CountUserBackends(role) }).unwrap_or(0)
}

/// Sessions of Postgres in this process' database.
pub fn sessions() -> u32 {
    // SAFETY: as above.
    u32::try_from(unsafe { pg_sys::CountDBConnections(database()) }).unwrap_or(0)
}

/// Whether names of roles are told apart by database, which no rule of ours knows. Gone from 17 on.
pub fn names_are_per_database() -> bool {
    // SAFETY: a look-up that gives NULL for a setting that there is not; the text is read at once.
    unsafe {
        let value = pg_sys::GetConfigOption(c"db_user_namespace".as_ptr(), true, false);
        !value.is_null() && CStr::from_ptr(value) == c"on"
    }
}

/// Roles that every server has: who may see all sessions, and who may end those of others.
pub const MONITOR: Oid = Oid::from_u32(3373);
pub const SIGNAL_BACKEND: Oid = Oid::from_u32(4200);

/// Whether a role has the privileges of another one; a superuser has those of all.
pub fn has_role(role: Oid, of: Oid) -> bool {
    // SAFETY: syscache look-ups inside of a transaction; neither needs to be there.
    unsafe { pg_sys::has_privs_of_role(role, of) }
}

/// Whether a role owns this process' database, or has the privileges of who does.
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
