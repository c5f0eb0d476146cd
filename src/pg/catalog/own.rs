//! The extension's functions in schema pgcache. pgcache recognises its own triggers and views by the functions that
//! they call.
//!
//! The lookups run whenever a table is altered or truncated, a row of a source table is written, or a cache is opened;
//! they run under any role, and also in databases without the extension. So they check no privilege and raise no error.
//! Any role may have created a schema named pgcache, so a function counts only if it is written in C, because only a
//! superuser can create such a function. The two SQL functions are exceptions; they occur only in the condition of a
//! trigger that calls a C function.

use std::ffi::CStr;

use pgrx::pg_sys::{self, Datum, Oid};

/// The OID of the language C, fixed in Postgres.
const C: Oid = Oid::from_u32(13);
/// The OID of the language SQL, fixed in Postgres.
const SQL: Oid = Oid::from_u32(14);

/// A function with its full signature.
pub struct Function {
    name: &'static CStr,
    arguments: &'static [Oid],
    language: Oid,
}

/// Describes a C function, which only a superuser can create.
const fn in_c(name: &'static CStr, arguments: &'static [Oid]) -> Function {
    Function {
        name,
        arguments,
        language: C,
    }
}

pub const RECORD: Function = in_c(c"record", &[]);
pub const RECORD_TRUNCATE: Function = in_c(c"record_truncate", &[]);
pub const COLUMNS: Function = in_c(c"columns", &[]);
/// The function of the BEFORE ROW trigger of a cache that is a partition of a plain table; from 0.4.0 on.
pub const RENEW_ROW: Function = in_c(c"renew_row", &[]);
/// The function of the trigger that carries a cache's reserve as its argument; from 0.5.0 on.
pub const RESERVE: Function = in_c(c"reserve", &[]);
/// The functions of the triggers that make a table a cache or carry its settings.
pub const OF_A_CACHE: [Function; 5] = [RECORD, RECORD_TRUNCATE, COLUMNS, RENEW_ROW, RESERVE];
pub const MEMORY_ENTRIES: Function = in_c(c"memory_entries", &[pg_sys::TEXTOID]);
pub const INVALIDATE: Function = in_c(c"invalidate", &[]);
pub const INVALIDATE_ALL: Function = in_c(c"invalidate_all", &[]);
/// The condition that the expired-row filter adds to scans of caches; from 0.4.0 on.
pub const LIVE: Function = in_c(c"live", &[pg_sys::TIMESTAMPTZOID]);
/// The condition for deadlines that are Unix times.
pub const LIVE_UNIX: Function = in_c(c"live_unix", &[pg_sys::INT8OID, pg_sys::INT4OID]);
/// Receives each key that plain SQL writes, so that an expired row under the key is replaced; from 0.4.0 on.
pub const RENEW: Function = in_c(
    c"renew",
    &[pg_sys::TEXTOID, pg_sys::REGCLASSOID, pg_sys::TEXTOID],
);
/// Holds a row of a COPY back until COPY ends; from 0.5.0 on.
pub const COPIED_AGAIN: Function = in_c(c"copied_again", &[pg_sys::RECORDOID, pg_sys::INT4OID]);
/// Occurs only in the condition of a trigger that calls `INVALIDATE` or `INVALIDATE_ALL`.
pub const DEPENDS: Function = Function {
    name: c"depends",
    arguments: &[pg_sys::REGCLASSOID, pg_sys::TEXTOID],
    language: SQL,
};

/// The variant of `DEPENDS` for a key that depends on settings, which its last argument lists; from 0.5.0 on.
pub const DEPENDS_UNDER: Function = Function {
    name: c"depends",
    arguments: &[pg_sys::REGCLASSOID, pg_sys::TEXTOID, pg_sys::TEXTOID],
    language: SQL,
};

impl Function {
    /// Returns the function's OID; InvalidOid if the extension is not installed or its version lacks the function.
    pub fn oid(&self) -> Oid {
        // SAFETY: syscache lookups, which check no privilege and return nothing for missing objects. The vector is a
        // copy; the tuple is released after it has been read.
        unsafe {
            let schema = pg_sys::get_namespace_oid(c"pgcache".as_ptr(), true);
            if schema == pg_sys::InvalidOid {
                return pg_sys::InvalidOid;
            }
            let arguments = self.arguments;
            let types = pg_sys::buildoidvector(arguments.as_ptr(), arguments.len() as i32);
            let tuple = pg_sys::SearchSysCache3(
                pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP as i32,
                Datum::from(self.name.as_ptr()),
                Datum::from(types),
                Datum::from(schema),
            );
            if tuple.is_null() {
                return pg_sys::InvalidOid;
            }
            let function: pg_sys::Form_pg_proc = pg_sys::GETSTRUCT(tuple).cast();
            let (oid, language) = ((*function).oid, (*function).prolang);
            pg_sys::ReleaseSysCache(tuple);
            match language == self.language {
                true => oid,
                false => pg_sys::InvalidOid,
            }
        }
    }
}
