//! The SQL functions that replace expired rows: `pgcache.renew` in statements, `pgcache.renew_copied` in COPY, and
//! the trigger `pgcache.renew_row`.
//!
//! The functions return their input, or true, and notify the observer (`pg::events`) that a statement is about to write
//! the key. The observer removes an expired row with that key.

use std::ffi::c_int;

use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::prelude::*;

use crate::pg::catalog::columns;
use crate::pg::events;
use crate::pg::hooks::expired_rows::begun::shows_expired;
use crate::pg::hooks::expired_rows::writes::OURS;
use crate::pg::hooks::trigger::called_as_trigger;
use crate::pg::value::call::V1;
use crate::pg::value::datum::varlena_bytes;

/// Returns the calling convention of `pgcache.renew()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_renew_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// Returns the calling convention of `pgcache.renew_copied()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_renew_copied_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// Returns the calling convention of `pgcache.renew_row()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_renew_row_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// `pgcache.renew(key text, cache regclass, former text) -> text`, VOLATILE. Returns the key, and makes the observer
/// remove an expired row with this key. Acts only if the planner hook made the call, because a role that calls the
/// function by name may hold no right on the cache. Does nothing in a session that shows expired rows, because its
/// writes see them, too. Does nothing if the key equals `former`, the key that the updated row already has: the row
/// itself may expire at this moment, and its removal would make the statement fail.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn renew_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: Postgres passes a valid call with three arguments of these types.
    unsafe {
        let arguments = (*call).args.as_slice(3);
        let [key, cache, former] = [&arguments[0], &arguments[1], &arguments[2]];
        (*call).isnull = key.isnull;
        let stays = !key.isnull
            && !former.isnull
            && varlena_bytes(key.value) == varlena_bytes(former.value);
        if !stays {
            renew(call, key, cache);
        }
        key.value
    }
}

/// `pgcache.renew_copied(key text, cache regclass) -> boolean`. The counterpart of `renew` at the end of COPY's
/// condition (module `copied`). Returns true. The function is declared STABLE although it removes a row. COPY does not
/// batch with a volatile condition, because a volatile condition might read rows that wait in the batch. This condition
/// need not see rows in the batch, because the unique index refuses a key that comes twice in a COPY anyway.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn renew_copied_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: Postgres passes a valid call with two arguments of these types.
    unsafe {
        let arguments = (*call).args.as_slice(2);
        (*call).isnull = false;
        renew(call, &arguments[0], &arguments[1]);
        Datum::from(true)
    }
}

/// `pgcache.renew_row()`, a BEFORE ROW trigger of a cache that is a partition of a plain table. Replaces expired rows
/// for statements that write to the plain table, because the planner hook cannot know which partition receives a row.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn renew_row_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    let trigger = called_as_trigger(call, "renew_row");
    // SAFETY: Postgres fills TriggerData: the relation is open, and a row trigger has the rows of its event; the
    // trigger returns the row to be written. The key column has the type that was found.
    unsafe {
        let table = (*trigger).tg_relation;
        let (row, new) = ((*trigger).tg_trigtuple, (*trigger).tg_newtuple);
        let (former, written) = match new.is_null() {
            true => (std::ptr::null_mut(), row),
            false => (row, new),
        };
        let is_table = (*(*table).rd_rel).relkind as u8 == pg_sys::RELKIND_RELATION;
        if is_table && !written.is_null() && !shows_expired() {
            let key = match (*(*trigger).tg_trigger).tgisclone {
                true => columns::key_in_partition(table),
                false => columns::key_column(table),
            };
            let key_of = |row: pg_sys::HeapTuple| {
                let (number, key_type) = key.filter(|_| !row.is_null())?;
                let mut null = true;
                let descriptor = (*table).rd_att;
                let key = pg_sys::heap_getattr(row, i32::from(number), descriptor, &mut null);
                (!null).then(|| key_type.bytes_of(key))
            };
            if let Some(key) = key_of(written).filter(|&key| key_of(former) != Some(key)) {
                events::emit(|observer| (observer.writing)((*table).rd_id, key));
            }
        }
        Datum::from(written)
    }
}

/// Notifies the observer of a key that is about to be written.
///
/// # Safety
/// `call` is a call of `renew` or `renew_copied`, with these arguments.
unsafe fn renew(
    call: pg_sys::FunctionCallInfo,
    key: &pg_sys::NullableDatum,
    cache: &pg_sys::NullableDatum,
) {
    // SAFETY: by the caller's contract; a key that is not NULL is a text.
    unsafe {
        let is_wanted = !key.isnull && !cache.isnull && !shows_expired();
        if is_wanted && place_of((*call).flinfo) == OURS {
            let cache = Oid::from_u32(cache.value.value() as u32);
            events::emit(|observer| (observer.writing)(cache, varlena_bytes(key.value)));
        }
    }
}

/// Returns the location of the call in the text of its statement; -1 if it is unknown.
///
/// # Safety
/// `function` is the FmgrInfo of a call.
pub unsafe fn place_of(function: *const pg_sys::FmgrInfo) -> c_int {
    // SAFETY: the function is NULL, or has an expression that is NULL or a node.
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
