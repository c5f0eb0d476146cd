//! Calls Postgres' functions on expressions: walks an expression, expands its virtual generated columns, and makes a
//! restriction from it.

use std::ffi::c_void;

use pgrx::pg_sys;

unsafe extern "C-unwind" {
    /// Calls `walker` for each node directly below a node, until it returns true. Must be called inside
    /// `unguarded::guarded`.
    #[cfg_attr(not(feature = "pg15"), link_name = "expression_tree_walker_impl")]
    pub fn expression_tree_walker(
        node: *mut pg_sys::Node,
        walker: Option<unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> bool>,
        context: *mut c_void,
    ) -> bool;
}

/// Replaces virtual generated columns by their expressions. `row` is the range table index of the table in the
/// expression.
///
/// # Safety
/// `relation` must be open; `node` is an expression in the current memory context.
pub unsafe fn expand_generated(
    node: *mut pg_sys::Node,
    relation: pg_sys::Relation,
    row: u32,
) -> *mut pg_sys::Node {
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let _ = (relation, row); // in these versions all generated columns are stored
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    // SAFETY: the relation is open, so its columns' expressions exist; the result is in the current memory context,
    // like the node.
    let node = unsafe { pg_sys::expand_generated_columns_in_expr(node, relation, row as i32) };
    node
}

/// Makes a restriction on a single relation, which is valid at any position in the query's joins.
///
/// # Safety
/// `root` belongs to the planner, and `clause` is an expression over one of its relations.
pub unsafe fn restriction(
    root: *mut pg_sys::PlannerInfo,
    clause: *mut pg_sys::Expr,
    security_level: pg_sys::Index,
) -> *mut pg_sys::RestrictInfo {
    use std::ptr::null_mut;
    // SAFETY: all nodes are the planner's own; sets of relations that the call omits are empty, or computed from the
    // clause.
    unsafe {
        pg_sys::make_restrictinfo(
            root,
            clause,
            true,
            false,
            false,
            #[cfg(not(feature = "pg15"))]
            false,
            security_level,
            null_mut(),
            null_mut(),
            null_mut(),
        )
    }
}
