//! Finds the functions that an expression calls, and reports whether any of them is user-defined.
//!
//! Callers use the result to choose the role that evaluates the expression, and the locks that a read of a table may
//! release early. For some kinds of expression nodes, Postgres' tree walker does not report the functions that they
//! call. Nodes of these kinds count as calls of user-defined functions; otherwise a role could hide a call of its
//! function in one of them.

use std::ffi::c_void;

use pgrx::pg_sys::{self, Node, Oid};

use crate::pg::memory::unguarded;
use crate::pg::version;

/// Returns whether Postgres' walker reports every function that a node of this kind calls. The walker does not report
/// them for domain checks, GREATEST, JSON constructors and similar nodes.
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

/// Returns whether an extension or a user created the function. The OID of such a function is above the OIDs of
/// Postgres' own functions.
pub fn is_of_a_user(function: Oid) -> bool {
    function.to_u32() >= pg_sys::FirstUnpinnedObjectId
}

/// Returns whether an expression may call a user-defined function. `context` is unused; Postgres' walker requires
/// the parameter.
///
/// # Safety
/// Called inside `unguarded::guarded`; `node` is NULL or an expression.
pub unsafe extern "C-unwind" fn may_call_a_users(node: *mut Node, context: *mut c_void) -> bool {
    // SAFETY: the node is read after the test for NULL; Postgres calls this again for the nodes below it, inside the
    // same `guarded`.
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
