//! What a statement gave back, read column by column.
//!
//! Guards that a value leaves SPI only as a detoasted copy in the caller's memory context, so that no lock is
//! needed later; and that no column is read as another type than it has.

use pgrx::pg_sys;

use crate::pg::session::clock::Timestamp;
use crate::pg::value::datum::{Text, Value, ValueType};
use crate::pg::value::stored::{Stored, refuse};
use crate::pg::value::typed::Typed;

/// What a statement gave back: rows, when it has any, and how many it touched.
pub struct Output {
    /// Rows returned, inserted, updated or deleted.
    pub processed: u64,
    table: *mut pg_sys::SPITupleTable,
    caller: pg_sys::MemoryContext,
}

impl Output {
    pub(in crate::pg) fn of_last_statement(caller: pg_sys::MemoryContext) -> Output {
        // SAFETY: SPI sets both after each statement; nothing ran in between.
        unsafe {
            Output {
                processed: pg_sys::SPI_processed,
                table: pg_sys::SPI_tuptable,
                caller,
            }
        }
    }

    /// How many rows can be read.
    pub fn rows(&self) -> usize {
        match self.table.is_null() {
            true => 0,
            false => self.processed as usize,
        }
    }

    /// How many columns a row has.
    pub fn columns(&self) -> usize {
        match self.table.is_null() {
            true => 0,
            // SAFETY: the descriptor lives as long as the table.
            false => unsafe { (*(*self.table).tupdesc).natts as usize },
        }
    }

    /// A column as it is. From 0.
    fn raw(&self, row: usize, column: usize) -> Option<pg_sys::Datum> {
        if row >= self.rows() {
            return None;
        }
        let mut null = false;
        // SAFETY: row is below the number of tuples; SPI_getbinval gives NULL for a column that
        // is not there. The datum points into SPI's memory, which lives as long as self.
        let datum = unsafe {
            let tuple = *(*self.table).vals.add(row);
            pg_sys::SPI_getbinval(tuple, (*self.table).tupdesc, column as i32 + 1, &mut null)
        };
        (!null).then_some(datum)
    }

    /// A row's address, copied into the caller's memory context.
    pub fn row_address(&self, row: usize, column: usize) -> Option<Typed> {
        let datum = self.of_type(row, column, pg_sys::TIDOID)?;
        // SAFETY: it has the type; the copy is made where it stays.
        unsafe {
            let size = size_of::<pg_sys::ItemPointerData>();
            let copy = pg_sys::MemoryContextAlloc(self.caller, size);
            std::ptr::copy_nonoverlapping(datum.cast_mut_ptr::<u8>(), copy.cast(), size);
            Some(Typed::copied_address(pg_sys::Datum::from(copy)))
        }
    }

    /// A transaction's id.
    pub fn xid(&self, row: usize, column: usize) -> Option<u32> {
        let datum = self.of_type(row, column, pg_sys::XIDOID)?;
        Some(datum.value() as u32)
    }

    /// The type of a column, from 0.
    pub fn type_of(&self, column: usize) -> pg_sys::Oid {
        // SAFETY: a statement that returns rows has a descriptor, also where there are none.
        unsafe { pg_sys::SPI_gettypeid((*self.table).tupdesc, column as i32 + 1) }
    }

    /// A column of any type in its text form, in the caller's memory context.
    pub fn printed(&self, row: usize, column: usize) -> Option<Text> {
        self.raw(row, column)?;
        // SAFETY: the row and the column are there and not null; the text is copied.
        unsafe {
            let tuple = *(*self.table).vals.add(row);
            let text = pg_sys::SPI_getvalue(tuple, (*self.table).tupdesc, column as i32 + 1);
            let spi = pg_sys::MemoryContextSwitchTo(self.caller);
            let copy = pg_sys::cstring_to_text(text);
            pg_sys::MemoryContextSwitchTo(spi);
            Some(Text::from_raw(pg_sys::Datum::from(copy)))
        }
    }

    /// A column of this type. A kept statement is planned anew when its table has changed, and may then give
    /// another: that ends it.
    fn of_type(&self, row: usize, column: usize, wanted: pg_sys::Oid) -> Option<pg_sys::Datum> {
        let datum = self.raw(row, column)?;
        if self.type_of(column) != wanted {
            refuse();
        }
        Some(datum)
    }

    /// A bigint.
    pub fn number(&self, row: usize, column: usize) -> Option<i64> {
        let datum = self.of_type(row, column, pg_sys::INT8OID)?;
        Some(datum.value() as i64)
    }

    /// A timestamptz.
    pub fn moment(&self, row: usize, column: usize) -> Option<Timestamp> {
        let datum = self.of_type(row, column, pg_sys::TIMESTAMPTZOID)?;
        Some(datum.value() as Timestamp)
    }

    /// An oid.
    pub fn oid(&self, row: usize, column: usize) -> Option<pg_sys::Oid> {
        let datum = self.raw(row, column)?;
        match self.type_of(column) {
            pg_sys::OIDOID | pg_sys::REGCLASSOID => {
                Some(pg_sys::Oid::from_u32(datum.value() as u32))
            }
            _ => refuse(),
        }
    }

    /// A text, copied into the caller's memory context.
    pub fn text(&self, row: usize, column: usize) -> Option<Text> {
        let datum = self.of_type(row, column, pg_sys::TEXTOID)?;
        // SAFETY: it has the type.
        Some(unsafe { Text::from_raw(self.copy(datum)) })
    }

    /// A value of whichever of our types the column has now, copied into the caller's memory context.
    pub fn stored(&self, row: usize, column: usize) -> Option<Stored> {
        let datum = self.raw(row, column)?;
        let Some(value_type) = ValueType::from_oid(self.type_of(column)) else {
            refuse();
        };
        // SAFETY: it has the type.
        Some(unsafe { Stored::new(self.copy(datum), value_type) })
    }

    /// A varlena, copied into the caller's memory context and detoasted.
    ///
    /// # Safety
    /// The datum is one.
    unsafe fn copy(&self, datum: pg_sys::Datum) -> pg_sys::Datum {
        // SAFETY: as the caller says. The copy is made in the memory context
        // that was current before SPI_connect, and the former one is put back.
        unsafe {
            let spi = pg_sys::MemoryContextSwitchTo(self.caller);
            let copy = pg_sys::pg_detoast_datum_copy(datum.cast_mut_ptr());
            pg_sys::MemoryContextSwitchTo(spi);
            pg_sys::Datum::from(copy)
        }
    }
}
