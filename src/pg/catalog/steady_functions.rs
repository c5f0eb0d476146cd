//! Checks whether an expression is steady: whether it always gives the same result for the same values.
//!
//! An expression may be steady always, only while the settings for the output and input of values stay the same, or
//! never. Postgres' volatility classes are not precise enough. A STABLE function may depend on these settings, but also
//! on the time, the user or the catalogs, and even IMMUTABLE output functions of numbers and bytes depend on a setting.
//! So this file lists the STABLE functions that depend only on the settings. A function that is wrongly on the list
//! could give a row two different keys.

use std::ffi::{CStr, c_void};

use pgrx::pg_sys::{self, Node, NodeTag, Oid};

use super::called_functions::is_of_a_user;
use crate::pg::encoding;
use crate::pg::memory::pg_list;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::version;

/// The dependencies of an expression's result, besides the values in it.
pub enum Steadiness {
    Steady,
    /// The settings of `session::temporary_settings::Texts`.
    UnderSettings,
    /// Depends on more than these settings. Holds a description of the cause.
    Unsteady(String),
}

/// Built-in STABLE functions that depend only on these settings.
const UNDER_SETTINGS: [&CStr; 31] = [
    c"cash_in",
    c"cash_out",
    c"convert",
    c"convert_from",
    c"convert_to",
    c"date",
    c"date_in",
    c"date_out",
    c"date_part",
    c"date_trunc",
    c"enum_in",
    c"enum_out",
    c"extract",
    c"interval_in",
    c"interval_out",
    c"interval_pl_timestamptz",
    c"length",
    c"make_timestamptz",
    c"money",
    c"numeric",
    c"overlaps",
    c"time",
    c"time_in",
    c"timestamp",
    c"timestamp_in",
    c"timestamp_out",
    c"timestamptz",
    c"to_char",
    c"to_date",
    c"to_number",
    c"to_timestamp",
];

/// Prefixes of the names of such functions: arithmetic and comparisons of timestamps and dates.
const FAMILIES: [&str; 3] = ["timestamptz_", "timestamp_", "date_"];

/// Built-in STABLE functions that convert arguments of any type to text. They are as steady as the output functions of
/// the arguments' types.
const PRINTING: [&CStr; 15] = [
    c"anytextcat",
    c"array_to_json",
    c"array_to_string",
    c"concat",
    c"concat_ws",
    c"format",
    c"json_build_array",
    c"json_build_object",
    c"jsonb_build_array",
    c"jsonb_build_object",
    c"quote_literal",
    c"quote_nullable",
    c"textanycat",
    c"to_json",
    c"to_jsonb",
];

/// IMMUTABLE functions that depend on `extra_float_digits` or `bytea_output`.
const IMMUTABLE_IN_NAME: [u32; 3] = [pg_sys::F_FLOAT4OUT, pg_sys::F_FLOAT8OUT, pg_sys::F_BYTEAOUT];

/// The state of the walk over an expression.
struct Found {
    follows_settings: bool,
    unsteady: Option<String>,
}

/// Returns how steady an expression is. The caller has checked that it contains no VOLATILE function.
///
/// # Safety
/// `node` is an analysed expression.
pub unsafe fn steadiness(node: *mut Node) -> Steadiness {
    let mut found = Found {
        follows_settings: false,
        unsteady: None,
    };
    // SAFETY: the walk is a sequence of plain values and of catalog lookups that have their own guards.
    unsafe { guarded(|| walk(node, (&raw mut found).cast())) };
    match (found.unsteady, found.follows_settings) {
        (Some(name), _) => Steadiness::Unsteady(name),
        (None, true) => Steadiness::UnderSettings,
        (None, false) => Steadiness::Steady,
    }
}

/// Walks an expression. Stops and returns true at a node that is not steady.
///
/// # Safety
/// The same as for `called_functions::may_call_a_users`; `context` is a [`Found`].
unsafe extern "C-unwind" fn walk(node: *mut Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: each node is read after its tag; Postgres calls this again for the nodes below.
    unsafe {
        let found: &mut Found = &mut *context.cast();
        let stops = match (*node).type_ {
            NodeTag::T_SQLValueFunction => found.refuse("CURRENT_DATE, CURRENT_USER or similar"),
            NodeTag::T_CoerceViaIO => {
                let cast: *mut pg_sys::CoerceViaIO = node.cast();
                found.prints(pg_sys::exprType((*cast).arg.cast()))
                    || found.prints((*cast).resulttype)
            }
            NodeTag::T_FuncExpr => {
                let call: *mut pg_sys::FuncExpr = node.cast();
                found.calls((*call).funcid, (*call).args)
            }
            NodeTag::T_OpExpr => {
                let call: *mut pg_sys::OpExpr = node.cast();
                found.calls((*call).opfuncid, (*call).args)
            }
            _ => unguarded::check_functions_in_node(node, Some(check), context),
        };
        stops || version::expression_tree_walker(node, Some(walk), context)
    }
}

unsafe extern "C-unwind" fn check(function: Oid, context: *mut c_void) -> bool {
    // SAFETY: the context that `walk` passes.
    unsafe { (*context.cast::<Found>()).calls(function, std::ptr::null_mut()) }
}

impl Found {
    fn refuse(&mut self, what: impl Into<String>) -> bool {
        self.unsteady = Some(what.into());
        true
    }

    /// Records a call of a function. Returns true if the function is not steady, or has been dropped: the expression
    /// may belong to a table that this session has not locked.
    ///
    /// # Safety
    /// `arguments` is NULL or a list of expressions.
    unsafe fn calls(&mut self, function: Oid, arguments: *mut pg_sys::List) -> bool {
        // SAFETY: catalog lookups; the name is palloc'd.
        unsafe {
            let name = pg_sys::get_func_name(function);
            if name.is_null() {
                return self.refuse("a dropped function");
            }
            if pg_sys::func_volatile(function) as u8 == pg_sys::PROVOLATILE_IMMUTABLE {
                self.follows_settings |= IMMUTABLE_IN_NAME.contains(&function.to_u32());
                return false;
            }
            let name = CStr::from_ptr(name);
            let shown = encoding::decode(name.to_bytes());
            let is_listed = !is_of_a_user(function)
                && (UNDER_SETTINGS.contains(&name)
                    || FAMILIES.iter().any(|family| shown.starts_with(family)));
            if is_listed {
                self.follows_settings = true;
                return false;
            }
            if is_of_a_user(function) || !PRINTING.contains(&name) || arguments.is_null() {
                return self.refuse(format!("{shown}()"));
            }
            pg_list::pointers::<Node>(arguments)
                .iter()
                .any(|&argument| self.prints(pg_sys::exprType(argument)))
        }
    }

    /// Records that a value of a type is converted to or from text. Returns true if the conversion is not steady.
    ///
    /// # Safety
    /// The type exists.
    unsafe fn prints(&mut self, mut of: Oid) -> bool {
        // SAFETY: catalog lookups. The loop ends, because types nest only a finite number of levels.
        unsafe {
            loop {
                of = pg_sys::getBaseType(of);
                let inner = [
                    pg_sys::get_element_type(of),
                    pg_sys::get_multirange_range(of),
                    pg_sys::get_range_subtype(of),
                ];
                match inner.into_iter().find(|&inner| inner != pg_sys::InvalidOid) {
                    Some(inner) => of = inner,
                    None => break,
                }
            }
            if of == pg_sys::UNKNOWNOID {
                return false;
            }
            let (mut output, mut varlena) = (pg_sys::InvalidOid, false);
            pg_sys::getTypeOutputInfo(of, &mut output, &mut varlena);
            self.calls(output, std::ptr::null_mut())
        }
    }
}
