//! Computes the key of a dependency for the rows that a statement changes.
//!
//! The trigger runs this code for every row, so the code avoids repeated work: it prepares the expression once for each
//! statement, puts one error guard around both rows, and computes the new row's key only if a column that the key reads
//! differs.

use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, Datum, Node, TupleTableSlot};

use crate::pg::catalog::called_functions::may_call_a_users;
use crate::pg::memory::unguarded::{self, guarded};
use crate::pg::version;

/// A key's expression, ready to be evaluated. The expression and everything that it points to are in the memory of the
/// call's FmgrInfo.
pub struct RowKey {
    state: *mut pg_sys::ExprState,
    context: *mut pg_sys::ExprContext,
    /// The columns that the key reads; None if it reads the whole row or a system column.
    columns: Option<Columns>,
    /// Whether the key calls no user-defined function and gives every role the same result.
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
    /// Prepares `key`, whose variables refer to OLD or NEW.
    ///
    /// # Safety
    /// The nodes are of the table's trigger; the current memory context lives as long as the result.
    pub unsafe fn prepare(key: *mut Node, table: pg_sys::Relation) -> RowKey {
        const ROWS: [u32; 2] = [pg_sys::PRS2_OLD_VARNO, pg_sys::PRS2_NEW_VARNO];
        // SAFETY: the nodes are a copy that the caller has read from the trigger's condition, so they may be changed:
        // variables of OLD and of NEW both become the inner tuple of the context. All allocations live as long as the
        // caller's memory context, as does the result.
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

    /// Returns the keys of the old and the new row. A key is None if the event has no such row, if the row has no key,
    /// or if the new key equals the old key. The keys live until the next call.
    ///
    /// # Safety
    /// Each slot is NULL, empty, or holds a row of the table.
    pub unsafe fn of_rows(
        &self,
        old: *mut TupleTableSlot,
        new: *mut TupleTableSlot,
    ) -> [Option<Datum>; 2] {
        // SAFETY: a sequence of plain values. The expression allocates in the per-row memory, which is emptied before
        // the next row; an error restores the memory context.
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
    /// Called inside `guarded`; the slot holds a row of the table.
    unsafe fn of_row(&self, slot: *mut TupleTableSlot) -> Option<Datum> {
        // SAFETY: the expression was prepared for this table's rows and reads only the inner tuple.
        unsafe {
            (*self.context).ecxt_innertuple = slot;
            let mut null = true;
            let evaluate = (*self.state).evalfunc?;
            let key = evaluate(self.state, self.context, &mut null);
            (!null).then_some(key)
        }
    }

    /// Returns whether every column that the key reads has the same bytes in both rows.
    ///
    /// # Safety
    /// The same as for `of_row`.
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
    // SAFETY: the flags are read after the test for NULL.
    unsafe { !slot.is_null() && (*slot).tts_flags & pg_sys::TTS_FLAG_EMPTY as u16 == 0 }
}

/// Returns the columns that a key reads; None if it reads the whole row or a system column.
///
/// # Safety
/// The same as for `RowKey::prepare`.
unsafe fn columns(key: *mut Node, table: pg_sys::Relation) -> Option<Columns> {
    // SAFETY: the numbers are the numbers of the table's columns, so the array has room for all of them.
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

/// Returns whether a planned expression gives every role the same result: it is immutable, and calls only Postgres'
/// own functions.
///
/// # Safety
/// `planned` is an expression.
unsafe fn is_plain(planned: *mut Node) -> bool {
    // SAFETY: both calls read the nodes; the walk is a sequence of plain values.
    unsafe {
        !pg_sys::contain_mutable_functions(planned)
            && !guarded(|| may_call_a_users(planned, std::ptr::null_mut()))
    }
}
