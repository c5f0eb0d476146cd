//! Makes COPY into a cache replace expired rows, as INSERT does.
//!
//! Postgres does not plan COPY, so the planner hook cannot change it. But COPY evaluates its WHERE condition for each
//! row before it adds the row to a batch. So this module appends a call of `pgcache.renew_copied(key, cache)` to the
//! condition. Rows that the statement's own condition excludes replace nothing, and COPY still writes in batches.
//!
//! A table that is empty when COPY begins, as in a restore, has no expired rows, so COPY runs unchanged.
//!
//! An expired row may block a later row of the same COPY, and no lookup finds the expired row while it waits in a
//! batch. So the module `twice` holds back each row whose key came earlier with an expired deadline, and inserts that
//! row at the end.
//!
//! The module `utility` calls this one.

use std::ffi::{CStr, c_int};

use pgrx::pg_sys::{self, Oid};

use crate::pg::catalog::relation;
use crate::pg::events;
use crate::pg::hooks::expired_rows::begun::shows_expired;
use crate::pg::hooks::expired_rows::cached::{Cached, Column, cached};
use crate::pg::hooks::expired_rows::twice;
use crate::pg::hooks::expired_rows::writes::OURS;
use crate::pg::memory::unguarded;

/// A running COPY into a cache, as changed by this module.
#[derive(Clone, Copy)]
pub struct Renewing {
    /// The statement that runs in place of the given one.
    pub statement: *mut pg_sys::PlannedStmt,
    /// The observer's number for the COPY.
    number: usize,
    /// The number that `twice` gave the COPY; 0 if the COPY holds no row back.
    copy: i32,
    table: Oid,
}

/// Begins a statement. Returns None if the statement is not a COPY into a cache, or if no expired row can block it; the
/// caller then runs the statement unchanged and does not call [`end`].
///
/// # Safety
/// The statement is a utility statement. The caller's frame holds nothing to drop, and C calls it.
pub unsafe fn begin(given: *mut pg_sys::PlannedStmt) -> Option<Renewing> {
    // SAFETY: by the caller's contract.
    unsafe {
        if !is_copy_from((*given).utilityStmt) {
            return None;
        }
        let (statement, table, copy) = pg_sys::panic::pgrx_extern_c_guard(|| renewing(given))?;
        let mut number = 0;
        let begin = || events::emit(|observer| number = (observer.copying)(table));
        pg_sys::panic::pgrx_extern_c_guard(begin);
        Some(Renewing {
            statement,
            number,
            copy,
            table,
        })
    }
}

/// Ends a statement that raised no error: inserts the rows that were held back, and adds their number to the
/// statement's row count.
///
/// # Safety
/// The caller's frame holds nothing to drop, and C calls it. `completion` is NULL or the statement's.
pub unsafe fn end(renewing: Renewing, completion: *mut pg_sys::QueryCompletion) {
    let end = || {
        events::emit(|observer| (observer.copied)(renewing.number));
        // SAFETY: the statement is that of `begin`, which lives as long as the given one.
        unsafe { twice::end(renewing.copy, renewing.statement, renewing.table) }
    };
    // SAFETY: by the caller's contract.
    unsafe {
        let inserted = pg_sys::panic::pgrx_extern_c_guard(end);
        if !completion.is_null() {
            (*completion).nprocessed += inserted;
        }
    }
}

/// # Safety
/// The node is a statement.
unsafe fn is_copy_from(node: *const pg_sys::Node) -> bool {
    // SAFETY: the node is read after its tag.
    unsafe {
        (*node).type_ == pg_sys::NodeTag::T_CopyStmt
            && (*node.cast::<pg_sys::CopyStmt>()).is_from
            && !(*node.cast::<pg_sys::CopyStmt>()).relation.is_null()
    }
}

/// Returns a copy of the statement that also replaces expired rows, its table, and the number that `twice` gave it.
/// Returns None if the statement need not replace any row.
///
/// # Safety
/// The statement is COPY of a table FROM somewhere.
unsafe fn renewing(
    former: *mut pg_sys::PlannedStmt,
) -> Option<(*mut pg_sys::PlannedStmt, Oid, i32)> {
    // SAFETY: by the caller's contract. Before this function reads the table, it takes the lock that COPY takes next,
    // by the same name. Only a copy of the statement changes, because the statement may be kept.
    unsafe {
        let copy: *mut pg_sys::CopyStmt = (*former).utilityStmt.cast();
        let table = pg_sys::RangeVarGetRelidExtended(
            (*copy).relation,
            pg_sys::RowExclusiveLock as i32,
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            std::ptr::null_mut(),
        );
        if shows_expired() || table == pg_sys::InvalidOid || !relation::is_table(table) {
            return None;
        }
        let found = unguarded::guarded(|| cached(table));
        let (found, key) = found.and_then(|found| Some((found, found.key?)))?;
        let number = match twice::has_functions() && !twice::holds_nothing_back(table) {
            true => twice::begin(),
            false => 0,
        };
        let renews = found.renew != pg_sys::InvalidOid && !is_empty(table);
        if !renews && number == 0 {
            return None;
        }
        let statement: *mut pg_sys::PlannedStmt =
            pg_sys::copyObjectImpl(former.cast_const().cast()).cast();
        let copy: *mut pg_sys::CopyStmt = (*statement).utilityStmt.cast();
        // COPY looks up the name again. Without a schema it could find another table, which was just created in a
        // schema earlier on the search path.
        let (schema, name) = (
            pg_sys::get_namespace_name(pg_sys::get_rel_namespace(table)),
            pg_sys::get_rel_name(table),
        );
        if schema.is_null() || name.is_null() {
            return None;
        }
        (*(*copy).relation).schemaname = schema;
        (*(*copy).relation).relname = name;
        if renews {
            (*copy).whereClause = and((*copy).whereClause, renewed(key, table));
        }
        if number != 0 {
            (*copy).whereClause = and((*copy).whereClause, held_back(found, key, table, number));
        }
        Some((statement, table, number))
    }
}

/// Returns whether the table, which is locked, is empty. Returns false for a partitioned table, because checking it would
/// lock its partitions.
fn is_empty(table: Oid) -> bool {
    !relation::is_partitioned(table) && relation::blocks(table) == 0
}

/// Makes `condition AND other`, as the parser would pass it to parse analysis.
///
/// # Safety
/// Each argument has not been analysed; the condition may be NULL.
unsafe fn and(condition: *mut pg_sys::Node, other: *mut pg_sys::Node) -> *mut pg_sys::Node {
    if condition.is_null() {
        return other;
    }
    // SAFETY: nodes in the current memory context.
    unsafe {
        let both = pg_sys::lappend(std::ptr::null_mut(), condition.cast());
        let both = pg_sys::lappend(both, other.cast());
        pg_sys::makeBoolExpr(pg_sys::BoolExprType::AND_EXPR, both, -1).cast()
    }
}

/// Makes `pgcache.renew_copied(key, cache)`.
///
/// The key is an analysed variable, which parse analysis accepts. A column name would require SELECT on the column,
/// which a role that may insert need not have. The executor compares the variable's type with the column's.
///
/// # Safety
/// The key is a column of the table.
unsafe fn renewed(key: Column, cache: Oid) -> *mut pg_sys::Node {
    // SAFETY: nodes in the current memory context, with the fields of each kind of node. COPY has one relation, with
    // range table index 1.
    unsafe {
        let key = text_of(key.of_row(1).cast(), key);
        let cache = constant(cache.to_u32() as c_int).cast();
        call(c"renew_copied", &[key, cache])
    }
}

/// Makes `pgcache.copied_first(key, copy, pgcache.live(deadline)) OR pgcache.copied_again(row, copy)`. Because of the
/// OR, COPY builds the whole row only if the row is held back.
///
/// # Safety
/// `found` describes the table, and `key` is a column of it.
unsafe fn held_back(found: Cached, key: Column, table: Oid, copy: i32) -> *mut pg_sys::Node {
    // SAFETY: as in `renewed`; a whole row has the type of its table, and the column number 0.
    unsafe {
        let deadline = found.deadline.of_row(1).cast();
        let is_live = match found.kind.per_second() {
            None => call(c"live", &[deadline]),
            Some(per_second) => call(c"live_unix", &[deadline, constant(per_second).cast()]),
        };
        let key = text_of(key.of_row(1).cast(), key);
        let first = call(
            c"copied_first",
            &[key, constant(copy).cast(), is_live.cast()],
        );
        let kind = pg_sys::get_rel_type_id(table);
        let row = pg_sys::makeVar(1, 0, kind, -1, pg_sys::InvalidOid, 0);
        let again = call(c"copied_again", &[row.cast(), constant(copy).cast()]);
        let either = pg_sys::lappend(std::ptr::null_mut(), first.cast());
        let either = pg_sys::lappend(either, again.cast());
        pg_sys::makeBoolExpr(pg_sys::BoolExprType::OR_EXPR, either, -1).cast()
    }
}

/// Makes a call of one of pgcache's functions.
///
/// # Safety
/// The arguments are nodes, and the function takes as many arguments.
unsafe fn call(function: &CStr, arguments: &[*mut std::ffi::c_void]) -> *mut pg_sys::Node {
    // SAFETY: nodes in the current memory context.
    unsafe {
        let list = arguments
            .iter()
            .fold(std::ptr::null_mut(), |list, &argument| {
                pg_sys::lappend(list, argument)
            });
        pg_sys::makeFuncCall(
            pg_sys::lappend(name(c"pgcache"), name_part(function)),
            list,
            pg_sys::CoercionForm::COERCE_EXPLICIT_CALL,
            OURS,
        )
        .cast()
    }
}

/// # Safety
/// Called with a memory context for the nodes.
unsafe fn name(part: &CStr) -> *mut pg_sys::List {
    // SAFETY: by the caller's contract.
    unsafe { pg_sys::lappend(std::ptr::null_mut(), name_part(part)) }
}

/// # Safety
/// Called with a memory context for the node.
unsafe fn name_part(part: &CStr) -> *mut std::ffi::c_void {
    // SAFETY: the string is a copy that the node keeps.
    unsafe { pg_sys::makeString(pg_sys::pstrdup(part.as_ptr())).cast() }
}

/// Converts the value to text with its type's output function. A varchar needs no cast, because the call itself accepts
/// a varchar.
///
/// # Safety
/// The expression has the type of the key column.
unsafe fn text_of(value: *mut pg_sys::Node, key: Column) -> *mut std::ffi::c_void {
    // SAFETY: room for a node, filled with the fields of a cast.
    unsafe {
        if matches!(key.kind, pg_sys::TEXTOID | pg_sys::VARCHAROID) {
            return value.cast();
        }
        let cast: *mut pg_sys::TypeCast = new(pg_sys::NodeTag::T_TypeCast);
        (*cast).arg = value;
        (*cast).typeName = pg_sys::makeTypeNameFromOid(pg_sys::TEXTOID, -1);
        (*cast).location = -1;
        cast.cast()
    }
}

/// Makes an integer constant of a statement. Where an argument is a regclass, Postgres converts the integer to it
/// without changing a bit.
///
/// # Safety
/// Called with a memory context for the node.
unsafe fn constant(number: c_int) -> *mut pg_sys::A_Const {
    // SAFETY: room for a node, filled with the fields of a constant.
    unsafe {
        let constant: *mut pg_sys::A_Const = new(pg_sys::NodeTag::T_A_Const);
        (*constant).val.ival = pg_sys::Integer {
            type_: pg_sys::NodeTag::T_Integer,
            ival: number,
        };
        (*constant).location = -1;
        constant
    }
}

/// Allocates a node, with only its tag set.
///
/// # Safety
/// `T` is the node type of the tag.
unsafe fn new<T>(tag: pg_sys::NodeTag) -> *mut T {
    // SAFETY: palloc0 returns room or raises; every node begins with its tag.
    unsafe {
        let node: *mut pg_sys::Node = pg_sys::palloc0(std::mem::size_of::<T>()).cast();
        (*node).type_ = tag;
        node.cast()
    }
}
