//! Makes INSERT, UPDATE and MERGE into a cache replace expired rows.
//!
//! `INSERT`, with or without `ON CONFLICT`, finds a conflicting row by the unique index, which ignores deadlines. So
//! without this module an expired row would make it raise an error, do nothing, or let its expressions read the expired
//! value. Therefore the planner hook passes each key that a statement is about to write through `pgcache.renew(key,
//! cache, former)`, which removes the expired row with this key and returns the key. The call costs one index lookup
//! for each written row. A BEFORE ROW trigger would cost more, would keep COPY from batching, and would fire even in
//! sessions that have not loaded the library.
//!
//! A row that is being updated was live when the scan found it. If it expires before its update, it must not be
//! removed. So `renew` removes nothing if the new key equals `former`, the key that the row already has.
//!
//! The hook changes the query before Postgres plans it, so a cached plan contains the call, too.

use std::ffi::{c_char, c_int};

use pgrx::pg_sys::{self, Oid};

use crate::pg::catalog::distributed;
use crate::pg::hooks::expired_rows::cached::{Cached, Column, cached, is_own};
use crate::pg::memory::pg_list;
use crate::pg::version::{self, Planning};

/// The location in the statement's text that pgcache sets in its own call. The parser gives no call this location, so a
/// user cannot remove rows by calling the function in a statement. (Postgres uses -1 for an unknown location.)
pub const OURS: c_int = -0x7067;

/// Installs the hook into the planner.
pub fn register() {
    // SAFETY: called once while the library is loaded; code that raises has its own guard.
    unsafe { version::on_planning(plan) };
}

/// Changes each statement before Postgres plans it. Has no pgrx guard, which would cost every statement time, because
/// most statements concern no cache.
///
/// # Safety
/// The statement is one that Postgres is about to plan.
unsafe fn plan(planning: Planning) -> *mut pg_sys::PlannedStmt {
    // SAFETY: the planner may change the query that it receives, and does. No frame here holds anything to drop.
    unsafe {
        renew_in(planning.query);
        planning.go_on()
    }
}

/// # Safety
/// The query was rewritten and is about to be planned: the relations that it names are locked.
unsafe fn renew_in(query: *mut pg_sys::Query) {
    use pg_sys::CmdType::{CMD_INSERT, CMD_MERGE, CMD_UPDATE};
    // SAFETY: a query that changes rows has the number of its target in the range table. Errors jump over frames with
    // nothing to drop.
    unsafe {
        if (*query).hasModifyingCTE {
            pg_sys::panic::pgrx_extern_c_guard(|| {
                for cte in pg_list::pointers::<pg_sys::CommonTableExpr>((*query).cteList) {
                    let inner = (*cte).ctequery;
                    if (*inner).type_ == pg_sys::NodeTag::T_Query {
                        renew_in(inner.cast());
                    }
                }
            });
        }
        if !matches!((*query).commandType, CMD_INSERT | CMD_MERGE | CMD_UPDATE) {
            return;
        }
        let place = (*query).resultRelation as usize - 1;
        let target: *mut pg_sys::RangeTblEntry =
            (*(*(*query).rtable).elements.add(place)).ptr_value.cast();
        let kind = (*target).relkind;
        let is_table = (*target).rtekind == pg_sys::RTEKind::RTE_RELATION
            && (kind == pg_sys::RELKIND_RELATION as c_char
                || kind == pg_sys::RELKIND_PARTITIONED_TABLE as c_char);
        if is_table
            && !is_own(target)
            && let Some(found) = cached((*target).relid)
        {
            pg_sys::panic::pgrx_extern_c_guard(|| renew_keys(query, (*target).relid, found));
        }
    }
}

/// # Safety
/// The query writes rows of this table, which was found to be a cache or a partition of one.
unsafe fn renew_keys(query: *mut pg_sys::Query, table: Oid, found: Cached) {
    let (Some(key), true) = (found.key, found.renew != pg_sys::InvalidOid) else {
        return;
    };
    // Citus plans the statement for shards, and must see the written key to choose one. Each shard is a cache itself,
    // so the planning on the shard adds the call.
    if distributed::is_known(table) {
        return;
    }
    // SAFETY: an action of MERGE and ON CONFLICT DO UPDATE each have their own list of the columns that they write.
    // Nodes are made in the current memory context, which is the query's, and the written expressions may name the
    // target of a statement that changes rows.
    unsafe {
        let none = || pg_sys::makeNullConst(pg_sys::TEXTOID, -1, DEFAULT_COLLATION).cast();
        let former = || as_text(key.of_row((*query).resultRelation).cast(), key);
        let renewed = Renewed {
            table,
            function: found.renew,
            key,
        };
        match (*query).commandType {
            pg_sys::CmdType::CMD_MERGE => {
                for action in pg_list::pointers::<pg_sys::MergeAction>((*query).mergeActionList) {
                    match (*action).commandType {
                        pg_sys::CmdType::CMD_UPDATE => {
                            renew_key((*action).targetList, renewed, former);
                        }
                        _ => renew_key((*action).targetList, renewed, none),
                    }
                }
            }
            pg_sys::CmdType::CMD_UPDATE => renew_key((*query).targetList, renewed, former),
            _ => {
                renew_key((*query).targetList, renewed, none);
                if !(*query).onConflict.is_null() {
                    renew_key((*(*query).onConflict).onConflictSet, renewed, former);
                }
            }
        }
    }
}

/// The table, the function and the key column for the calls of `pgcache.renew` in a statement.
#[derive(Clone, Copy)]
struct Renewed {
    table: Oid,
    /// `pgcache.renew`.
    function: Oid,
    key: Column,
}

/// # Safety
/// The list holds written columns; `former` returns the text of the row's present key.
unsafe fn renew_key(
    columns: *mut pg_sys::List,
    renewed: Renewed,
    former: impl Fn() -> *mut pg_sys::Node,
) {
    let Renewed {
        table,
        function,
        key,
    } = renewed;
    // SAFETY: the list has target entries, each with an expression. The nodes are made in the
    // current memory context, which is the query's.
    unsafe {
        for column in pg_list::pointers::<pg_sys::TargetEntry>(columns) {
            if (*column).resjunk || (*column).resno != key.number {
                continue;
            }
            let value = as_text((*column).expr.cast(), key);
            let table = pg_sys::makeConst(
                pg_sys::REGCLASSOID,
                -1,
                pg_sys::InvalidOid,
                4,
                pg_sys::Datum::from(table),
                false,
                true,
            );
            let arguments = pg_sys::lappend(std::ptr::null_mut(), value.cast());
            let arguments = pg_sys::lappend(arguments, table.cast());
            let collation = pg_sys::exprCollation(value);
            let call = pg_sys::makeFuncExpr(
                function,
                pg_sys::TEXTOID,
                pg_sys::lappend(arguments, former().cast()),
                collation,
                collation,
                pg_sys::CoercionForm::COERCE_EXPLICIT_CALL,
            );
            (*call.cast::<pg_sys::FuncExpr>()).location = OURS;
            (*column).expr = from_text(call.cast(), key).cast();
        }
    }
}

/// Converts a key to text with its type's output function; text is the form of a key everywhere outside its table.
///
/// # Safety
/// The expression has the type of the key column.
unsafe fn as_text(value: *mut pg_sys::Node, key: Column) -> *mut pg_sys::Node {
    // SAFETY: nodes in the current memory context; a varchar is the same bytes as a text.
    unsafe {
        match key.kind {
            pg_sys::TEXTOID => value,
            pg_sys::VARCHAROID => {
                let collation = pg_sys::exprCollation(value);
                relabelled(value, pg_sys::TEXTOID, -1, collation)
            }
            _ => by_input_and_output(value, pg_sys::TEXTOID, DEFAULT_COLLATION),
        }
    }
}

/// Converts the text back to the type of the key column, because an expression for the column must have this type.
///
/// # Safety
/// The expression gives the text of a key.
unsafe fn from_text(text: *mut pg_sys::Node, key: Column) -> *mut pg_sys::Node {
    // SAFETY: as in `as_text`; the text is the output of a value of this type and length.
    unsafe {
        match key.kind {
            pg_sys::TEXTOID => text,
            pg_sys::VARCHAROID => {
                let collation = pg_sys::exprCollation(text);
                relabelled(text, key.kind, key.modifier, collation)
            }
            other => by_input_and_output(text, other, pg_sys::InvalidOid),
        }
    }
}

/// The OID of `pg_catalog."default"`, fixed in Postgres' pg_collation.dat.
const DEFAULT_COLLATION: Oid = Oid::from_u32(100);

/// # Safety
/// The expression's type and `kind` have the same datums.
unsafe fn relabelled(
    value: *mut pg_sys::Node,
    kind: Oid,
    modifier: i32,
    collation: Oid,
) -> *mut pg_sys::Node {
    let form = pg_sys::CoercionForm::COERCE_IMPLICIT_CAST;
    // SAFETY: a node in the current memory context.
    unsafe { pg_sys::makeRelabelType(value.cast(), kind, modifier, collation, form).cast() }
}

/// # Safety
/// The expression is of type text, or `kind` is text.
unsafe fn by_input_and_output(
    value: *mut pg_sys::Node,
    kind: Oid,
    collation: Oid,
) -> *mut pg_sys::Node {
    // SAFETY: room for a node in the current memory context, filled with the fields of this kind of node.
    unsafe {
        let node: *mut pg_sys::CoerceViaIO =
            pg_sys::palloc0(std::mem::size_of::<pg_sys::CoerceViaIO>()).cast();
        (*node).xpr.type_ = pg_sys::NodeTag::T_CoerceViaIO;
        (*node).arg = value.cast();
        (*node).resulttype = kind;
        (*node).resultcollid = collation;
        (*node).coerceformat = pg_sys::CoercionForm::COERCE_IMPLICIT_CAST;
        (*node).location = -1;
        node.cast()
    }
}
