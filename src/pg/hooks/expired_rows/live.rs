//! The SQL functions `pgcache.live(expires_at)` and `pgcache.live_unix(deadline, per_second)`, which return whether
//! plain SQL sees a row with this deadline, and their selectivity for the planner.
//!
//! They are C functions without pgrx's wrapper, because `live` and `live_unix` run for each row of each scan.

use pgrx::pg_sys::{self, Datum};
use pgrx::prelude::*;

use crate::pg::hooks::expired_rows::begun;
use crate::pg::hooks::expired_rows::cached::TO_BIGINT;
use crate::pg::memory::pg_list;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::pg::value::call::V1;
use crate::pg::value::moment;

/// Returns the calling convention of `pgcache.live()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_live_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// Returns the calling convention of `pgcache.live_support()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_live_support_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// Returns the calling convention of `pgcache.live_unix()`.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_live_unix_wrapper() -> *const pg_sys::Pg_finfo_record {
    &V1
}

/// `pgcache.live(timestamptz) -> boolean`, STABLE. Returns whether the deadline has not passed. Reads the clock once
/// for each call site in a plan, because reading it for each row would double the time of an index range scan.
///
/// Never fails and never allocates, because it stores the first live deadline in the pointer that Postgres reserves for
/// each call site.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn live_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: Postgres passes a valid call with one argument. `fn_extra` is the function's own: NULL at first, never
    // copied, and never followed as a pointer.
    unsafe {
        let argument = &(*call).args.as_slice(1)[0];
        (*call).isnull = false;
        if argument.isnull {
            return Datum::from(true);
        }
        let from = first_live_for((*call).flinfo);
        Datum::from(argument.value.value() as Timestamp >= from)
    }
}

/// `pgcache.live_unix(deadline bigint, per_second integer) -> boolean`, STABLE. Does the same as `live` for a Unix time
/// with `per_second` units in a second. 0, a negative number and NULL mean that the row never expires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn live_unix_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: the same as in `live_wrapper`, with two arguments.
    unsafe {
        let arguments = (*call).args.as_slice(2);
        let [deadline, per_second] = [&arguments[0], &arguments[1]];
        (*call).isnull = false;
        if deadline.isnull || per_second.isnull {
            return Datum::from(true);
        }
        let unit = moment::unit(per_second.value.value() as i32);
        let live = match moment::of_unix_time(deadline.value.value() as i64, unit) {
            Some(moment) => moment >= first_live_for((*call).flinfo),
            None => true,
        };
        Datum::from(live)
    }
}

/// Returns the earliest live deadline, computed once for each call site in a plan.
///
/// # Safety
/// `function` is the FmgrInfo of a call of `live` or `live_unix`, or NULL.
#[inline(always)]
unsafe fn first_live_for(function: *mut pg_sys::FmgrInfo) -> Timestamp {
    // SAFETY: as for `fn_extra` in `live_wrapper`.
    unsafe {
        let known = match function.is_null() {
            true => 0,
            false => (*function).fn_extra as usize as Timestamp,
        };
        if known != 0 {
            return known;
        }
        let from = first_live();
        if !function.is_null() {
            (*function).fn_extra = from as usize as *mut std::ffi::c_void;
        }
        from
    }
}

/// Returns the earliest deadline that counts as live, the microsecond after now; never 0.
///
/// In a statement that sees expired rows every deadline is live. The executor decides this when the statement begins;
/// the planner cannot, because sessions keep plans.
fn first_live() -> Timestamp {
    let all = begun::sees_all()
        || fault::on(Fault::ExpiredNotHidden)
        || (fault::on(Fault::ShownByFetch) && begun::shows_expired());
    match all {
        true => Timestamp::MIN,
        // 0 means "not computed yet", so the result is at least 1. The two differ by one microsecond, and only on
        // 2000-01-01.
        false => (clock::now() + 1).max(1),
    }
}

/// The operator `timestamptz > timestamptz`, fixed in Postgres' pg_operator.dat.
const LATER: pg_sys::Oid = pg_sys::Oid::from_u32(1324);

/// The operator `int8 > int8`, fixed in the same file.
const MORE: pg_sys::Oid = pg_sys::Oid::from_u32(413);
/// The operator `int4 > int8`, fixed in the same file.
const INTEGER_MORE: pg_sys::Oid = pg_sys::Oid::from_u32(76);

/// The smallest share of live rows that the planner assumes. Statistics describe the deadlines at the time of ANALYZE.
/// If entries live for a minute, an hour-old histogram says that all deadlines have passed, although the table is full
/// of live rows. Too low an estimate costs more than one that is too high.
const LEAST: f64 = 0.25;

/// `pgcache.live_support(internal) -> internal`: estimates the share of live rows.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn live_support_wrapper(call: pg_sys::FunctionCallInfo) -> Datum {
    // SAFETY: Postgres passes a valid call with one argument, a node of the planner. SQL cannot make an argument of
    // type internal other than NULL.
    unsafe {
        (*call).isnull = false;
        let argument = &(*call).args.as_slice(1)[0];
        let request: *mut pg_sys::SupportRequestSelectivity = argument.value.cast_mut_ptr();
        if argument.isnull
            || request.is_null()
            || (*request).type_ != pg_sys::NodeTag::T_SupportRequestSelectivity
        {
            return Datum::from(0);
        }
        (*request).selectivity = share_of_live(request);
        Datum::from(request)
    }
}

/// # Safety
/// The request is the planner's.
unsafe fn share_of_live(request: *mut pg_sys::SupportRequestSelectivity) -> f64 {
    // SAFETY: the list of arguments begins with the deadline. The result of `examine_variable` names the function that
    // releases it.
    unsafe {
        let request = &*request;
        let (deadline, operator, now) = compared(pg_list::pointers(request.args));
        let mut about = pg_sys::VariableStatData::default();
        pg_sys::examine_variable(request.root, deadline, request.varRelid, &mut about);
        let statistics = about.statsTuple;
        if statistics.is_null() {
            return 1.0; // sweeps leave few expired rows
        }
        let row: pg_sys::Form_pg_statistic = pg_sys::GETSTRUCT(statistics).cast();
        let without = f64::from((*row).stanullfrac);
        if let Some(free) = about.freefunc {
            free(statistics);
        }
        let both = pg_sys::lappend(std::ptr::null_mut(), deadline.cast());
        let both = pg_sys::lappend(both, now.cast());
        let none = pg_sys::InvalidOid;
        let later =
            pg_sys::restriction_selectivity(request.root, operator, both, none, request.varRelid);
        (without + later).clamp(LEAST, 1.0)
    }
}

/// Returns the deadline column, the operator that compares it, and a constant for the current time.
///
/// # Safety
/// `arguments` are the arguments of a call of `live` or `live_unix`.
unsafe fn compared(
    arguments: Vec<*mut pg_sys::Node>,
) -> (*mut pg_sys::Node, pg_sys::Oid, *mut pg_sys::Const) {
    // SAFETY: nodes are read only after their tag; new nodes are in the planner's memory.
    unsafe {
        let constant = |kind, now: i64| {
            let none = pg_sys::InvalidOid;
            pg_sys::makeConst(kind, -1, none, 8, Datum::from(now), false, true)
        };
        let deadline = arguments[0];
        let Some(&per_second) = arguments.get(1) else {
            let now = constant(pg_sys::TIMESTAMPTZOID, clock::now());
            return (deadline, LATER, now);
        };
        let per_second = match (*per_second).type_ {
            pg_sys::NodeTag::T_Const => {
                (*per_second.cast::<pg_sys::Const>()).constvalue.value() as i32
            }
            _ => 1,
        };
        let now = moment::to_unix_time(clock::now(), moment::unit(per_second));
        let now = constant(pg_sys::INT8OID, now);
        if (*deadline).type_ == pg_sys::NodeTag::T_FuncExpr {
            let widened: *mut pg_sys::FuncExpr = deadline.cast();
            if (*widened).funcid == TO_BIGINT {
                let integer = (*(*(*widened).args).elements).ptr_value.cast();
                return (integer, INTEGER_MORE, now);
            }
        }
        (deadline, MORE, now)
    }
}
