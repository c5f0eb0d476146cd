//! `pgcache.renew(key, cache)`: gives the key back, and tells the observer that a statement is about
//! to write it.

use std::ffi::c_int;

use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::prelude::*;

use super::live::shows_expired;
use super::writes::OURS;
use crate::pg::events;
use crate::pg::value::datum::varlena_bytes;

/// Tells Postgres that the function below uses calling convention version 1.
static V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };

/// Tells Postgres the calling convention of `pgcache.renew()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_renew_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// `pgcache.renew(key text, cache regclass) -> text`, VOLATILE. Does nothing but where the planner's
/// hook has put it: who calls it by name may hold no right on the cache. Where the session asks to see
/// expired rows, they are there for what it writes as well.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn renew_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: Postgres gives a valid call with two arguments of these types.
    unsafe {
        let arguments = (*call).args.as_slice(2);
        let [key, cache] = [&arguments[0], &arguments[1]];
        (*call).isnull = key.isnull;
        let is_wanted = !key.isnull && !cache.isnull && !shows_expired();
        if is_wanted && place_of((*call).flinfo) == OURS {
            let cache = Oid::from_u32(cache.value.value() as u32);
            events::emit(|observer| (observer.writing)(cache, varlena_bytes(key.value)));
        }
        key.value
    }
}

/// Where the call stands in the text of its statement.
///
/// # Safety
/// `function` is what a call was given.
unsafe fn place_of(function: *const pg_sys::FmgrInfo) -> c_int {
    // SAFETY: NULL, or what the function is called by: NULL or an expression.
    unsafe {
        if function.is_null() {
            return -1;
        }
        let by: *const pg_sys::Node = (*function).fn_expr.cast();
        match !by.is_null() && (*by).type_ == pg_sys::NodeTag::T_FuncExpr {
            true => (*by.cast::<pg_sys::FuncExpr>()).location,
            false => -1,
        }
    }
}
