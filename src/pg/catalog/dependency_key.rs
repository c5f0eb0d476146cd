//! The key of a dependency, evaluated over the rows that a statement changes.
//!
//! This runs for every row, so it is as little as can be: the expression is prepared once a statement,
//! one guard stands around both rows, and the new row's key is not computed where no column differs of
//! which it is made.

use std::ffi::c_void;

use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, Datum, Node, Oid, TupleTableSlot};

use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::version;

/// In the memory of the call's FmgrInfo, as all that it points to.
pub struct RowKey {
    state: *mut pg_sys::ExprState,
    context: *mut pg_sys::ExprContext,
    /// The columns of which the key is made; None where that is more than columns.
    columns: Option<Columns>,
    /// Whoever evaluates it, the result is the same, and no code of a user's runs.
    pub is_plain: bool,
}

#[derive(Clone, Copy)]
struct Columns {
    first: *mut Column,
    number: usize,
}

#[derive(Clone, Copy)]
struct Column {
    number: i16,
    by_value: bool,
    length: i16,
}

impl RowKey {
    /// Prepares `key`, whose variables speak of OLD or NEW.
    ///
    /// # Safety
    /// The nodes are of the table's trigger; the current memory context lives as long as the result.
    pub unsafe fn prepare(key: *mut Node, table: pg_sys::Relation) -> RowKey {
        const ROWS: [u32; 2] = [pg_sys::PRS2_OLD_VARNO, pg_sys::PRS2_NEW_VARNO];
        // SAFETY: as the caller says. Both kinds of variables become the inner tuple of the context.
        unsafe {
            let key = ROWS
                .iter()
                .fold(key, |key, &row| version::expand_generated(key, table, row));
            let columns = columns(key, table);
            for row in ROWS {
                pg_sys::ChangeVarNodes(key, row as i32, pg_sys::INNER_VAR, 0);
            }
            let planned = pg_sys::expression_planner(key.cast());
            RowKey {
                state: pg_sys::ExecInitExpr(planned, std::ptr::null_mut()),
                context: pg_sys::CreateStandaloneExprContext(),
                columns,
                is_plain: is_plain(planned.cast()),
            }
        }
    }

    /// The keys of the old and the new row, where there are such rows; None stands for no entry, or for
    /// a new key that is the old one. They live until this is called again.
    ///
    /// # Safety
    /// Each slot is NULL, empty, or holds a row of the table.
    pub unsafe fn of_rows(
        &self,
        old: *mut TupleTableSlot,
        new: *mut TupleTableSlot,
    ) -> [Option<Datum>; 2] {
        // SAFETY: a sequence of plain values. What the expression allocates goes to the per-row memory,
        // which is emptied before the next row; an error puts the memory context back.
        unsafe {
            guarded(|| {
                let memory = (*self.context).ecxt_per_tuple_memory;
                unguarded::MemoryContextReset(memory);
                let former = pg_sys::CurrentMemoryContext;
                pg_sys::CurrentMemoryContext = memory;
                let keys = match (holds_row(old), holds_row(new)) {
                    (true, true) if self.is_same(old, new) => [self.of_row(old), None],
                    (old_too, new_too) => [
                        old_too.then(|| self.of_row(old)).flatten(),
                        new_too.then(|| self.of_row(new)).flatten(),
                    ],
                };
                pg_sys::CurrentMemoryContext = former;
                keys
            })
        }
    }

    /// # Safety
    /// Inside of `guarded`; the slot holds a row of the table.
    unsafe fn of_row(&self, slot: *mut TupleTableSlot) -> Option<Datum> {
        // SAFETY: the expression was made for this table's rows and reads only the inner tuple.
        unsafe {
            (*self.context).ecxt_innertuple = slot;
            let mut null = true;
            let evaluate = (*self.state).evalfunc?;
            let key = evaluate(self.state, self.context, &mut null);
            (!null).then_some(key)
        }
    }

    /// Whether every column of which the key is made has the same bytes in both rows.
    ///
    /// # Safety
    /// As `of_row`.
    unsafe fn is_same(&self, old: *mut TupleTableSlot, new: *mut TupleTableSlot) -> bool {
        let Some(Columns { first, number }) = self.columns else {
            return false;
        };
        // SAFETY: the columns were allocated together; the table has them.
        unsafe {
            (0..number).all(|at| {
                let Column {
                    number,
                    by_value,
                    length,
                } = *first.add(at);
                match (
                    unguarded::column(old, number),
                    unguarded::column(new, number),
                ) {
                    (Some(one), Some(other)) => {
                        unguarded::datum_image_eq(one, other, by_value, i32::from(length))
                    }
                    (one, other) => one.is_none() && other.is_none(),
                }
            })
        }
    }
}

/// # Safety
/// The slot is NULL or one of the executor's.
unsafe fn holds_row(slot: *mut TupleTableSlot) -> bool {
    // SAFETY: as the caller says.
    unsafe { !slot.is_null() && (*slot).tts_flags & pg_sys::TTS_FLAG_EMPTY as u16 == 0 }
}

/// The columns that a key speaks of; None where it speaks of the whole row or of a system column.
///
/// # Safety
/// As `RowKey::prepare`.
unsafe fn columns(key: *mut Node, table: pg_sys::Relation) -> Option<Columns> {
    // SAFETY: numbers of columns are those of the table; there are at most as many as it has.
    unsafe {
        let mut numbers = std::ptr::null_mut();
        for row in [pg_sys::PRS2_OLD_VARNO, pg_sys::PRS2_NEW_VARNO] {
            pg_sys::pull_varattnos(key, row, &mut numbers);
        }
        let described = PgTupleDesc::from_pg_unchecked((*table).rd_att);
        let room = size_of::<Column>() * described.len();
        let first: *mut Column = pg_sys::palloc(room).cast();
        let mut number = 0;
        let mut member = pg_sys::bms_next_member(numbers, -1);
        while member >= 0 {
            let column = member + pg_sys::FirstLowInvalidHeapAttributeNumber;
            if column <= 0 {
                return None;
            }
            let attribute = described.get(column as usize - 1)?;
            first.add(number).write(Column {
                number: attribute.attnum,
                by_value: attribute.attbyval,
                length: attribute.attlen,
            });
            number += 1;
            member = pg_sys::bms_next_member(numbers, member);
        }
        Some(Columns { first, number })
    }
}

/// Whether a planned expression gives everybody the same: it is immutable, and calls none but Postgres'
/// own functions.
///
/// # Safety
/// `planned` is an expression.
unsafe fn is_plain(planned: *mut Node) -> bool {
    // SAFETY: both look at the nodes; the walk is a sequence of plain values.
    unsafe {
        !pg_sys::contain_mutable_functions(planned)
            && !guarded(|| calls_a_users(planned, std::ptr::null_mut()))
    }
}

/// Of other kinds of nodes (checks of domains, GREATEST, constructors of JSON) Postgres does not show every
/// function that they call.
pub(in crate::pg) fn shows_its_functions(node: pg_sys::NodeTag) -> bool {
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

/// # Safety
/// Inside of `guarded`; `node` is NULL or an expression.
unsafe extern "C-unwind" fn calls_a_users(node: *mut Node, context: *mut c_void) -> bool {
    // SAFETY: as the caller says; Postgres walks the nodes below.
    unsafe {
        !node.is_null()
            && (!shows_its_functions((*node).type_)
                || unguarded::check_functions_in_node(node, Some(is_a_users), context)
                || version::expression_tree_walker(node, Some(calls_a_users), context))
    }
}

/// Functions that an extension or a user made have numbers above those that Postgres gives its own.
unsafe extern "C-unwind" fn is_a_users(function: Oid, _context: *mut c_void) -> bool {
    function.to_u32() >= pg_sys::FirstUnpinnedObjectId
}
