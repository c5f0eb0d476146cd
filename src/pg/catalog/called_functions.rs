//! Which functions an expression calls: whether any of them is code of a user's.
//!
//! Decides who may evaluate an expression, and what a read of a table may give back. Guards one
//! rule: a kind of node of which Postgres does not show every function that it calls counts as one
//! that calls anything.

use std::ffi::c_void;

use pgrx::pg_sys::{self, Node, Oid};

use crate::pg::memory::unguarded;
use crate::pg::version;

/// Whether Postgres shows every function that a node of this kind calls. It does not for the
/// others: checks of domains, GREATEST, constructors of JSON.
pub fn shows_its_functions(node: pg_sys::NodeTag) -> bool {
    use pg_sys::NodeTag::*;
    matches!(
        node,
        T_List
            | T_Var
            | T_Const
            | T_FuncExpr
            | T_OpExpr
            | T_DistinctExpr
            | T_NullIfExpr
            | T_ScalarArrayOpExpr
            | T_BoolExpr
            | T_RelabelType
            | T_CoerceViaIO
            | T_CaseExpr
            | T_CaseWhen
            | T_CaseTestExpr
            | T_CoalesceExpr
            | T_NullTest
            | T_BooleanTest
    )
}

/// Whether an extension or a user made a function: their oids are above those that Postgres gives
/// its own.
pub fn is_of_a_user(function: Oid) -> bool {
    function.to_u32() >= pg_sys::FirstUnpinnedObjectId
}

/// Whether an expression may call a function of a user's. `context` is not looked at; Postgres'
/// walker passes it.
///
/// # Safety
/// Inside of `unguarded::guarded`; `node` is NULL or an expression.
pub unsafe extern "C-unwind" fn may_call_a_users(node: *mut Node, context: *mut c_void) -> bool {
    // SAFETY: the node is looked at after the test for NULL; Postgres calls this again for the
    // nodes below it, inside of the same `guarded`.
    unsafe {
        !node.is_null()
            && (!shows_its_functions((*node).type_)
                || unguarded::check_functions_in_node(node, Some(checks_user), context)
                || version::expression_tree_walker(node, Some(may_call_a_users), context))
    }
}

unsafe extern "C-unwind" fn checks_user(function: Oid, _context: *mut c_void) -> bool {
    is_of_a_user(function)
}
