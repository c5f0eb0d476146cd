//! Checks whether a table's row-level security policies may run user-defined code. The result decides which locks a
//! read of the table may release before the transaction ends.
//!
//! Most policies compare a column with the current role or with a setting, and take no lock. A policy that reads
//! another table or calls a user-defined function may take locks.

use std::ffi::c_void;

use pgrx::pg_sys::{self, Node, Oid};

use super::called_functions::{is_of_a_user, shows_its_functions};
use crate::pg::memory::pg_list;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::version;

/// Returns whether the table's policies consist only of columns, constants, the current role, settings, and immutable
/// built-in functions.
///
/// # Safety
/// `relation` must be open and locked.
pub unsafe fn run_nothing_of_users(relation: pg_sys::Relation) -> bool {
    // SAFETY: rd_rsdesc is NULL or a description that lives as long as the relation is open; its expressions are only
    // read, in sequences of plain values.
    unsafe {
        let description = (*relation).rd_rsdesc;
        if description.is_null() {
            return true; // enabled without a policy: no row is visible
        }
        pg_list::pointers::<pg_sys::RowSecurityPolicy>((*description).policies)
            .into_iter()
            .all(|policy| {
                let policy = &*policy;
                let (using, check) = (policy.qual.cast(), policy.with_check_qual.cast());
                !policy.hassublinks
                    && guarded(|| {
                        !may_run_user_code(using, std::ptr::null_mut())
                            && !may_run_user_code(check, std::ptr::null_mut())
                    })
            })
    }
}

/// # Safety
/// Called inside `guarded`; `node` is NULL or an expression.
unsafe extern "C-unwind" fn may_run_user_code(node: *mut Node, context: *mut c_void) -> bool {
    // SAFETY: the node is read after the test for NULL; Postgres calls this again for the nodes below it, inside the
    // same `guarded`.
    unsafe {
        if node.is_null() || (*node).type_ == pg_sys::NodeTag::T_SQLValueFunction {
            return false; // CURRENT_USER and similar
        }
        !shows_its_functions((*node).type_)
            || unguarded::check_functions_in_node(node, Some(is_not_plain), context)
            || version::expression_tree_walker(node, Some(may_run_user_code), context)
    }
}

/// Returns true for a user-defined function. Also returns true for a built-in function that is not immutable, because
/// it may run statements, as table_to_xml() does. current_setting() is an exception.
unsafe extern "C-unwind" fn is_not_plain(function: Oid, _context: *mut c_void) -> bool {
    let reads_a_setting = matches!(
        function.to_u32(),
        pg_sys::F_CURRENT_SETTING_TEXT | pg_sys::F_CURRENT_SETTING_TEXT_BOOL
    );
    // SAFETY: called inside `guarded`, for a function that an expression names.
    let is_immutable =
        || unsafe { unguarded::func_volatile(function) as u8 == pg_sys::PROVOLATILE_IMMUTABLE };
    is_of_a_user(function) || !(reads_a_setting || is_immutable())
}
