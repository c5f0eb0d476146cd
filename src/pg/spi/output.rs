//! Reads the result of an SPI statement, column by column.
//!
//! A value leaves this module only as a detoasted copy in the caller's memory context, so that reading it later needs
//! no lock. Each function checks a column's type before it reads the column as this type.

use pgrx::{FromDatum, pg_sys};

use crate::pg::session::clock::Timestamp;
use crate::pg::value::datum::{ArrayOf, Text, Value, ValueType};
use crate::pg::value::stored::{Stored, refuse};
use crate::pg::value::typed::Typed;

/// The result of a statement: the rows that it returned, if any, and the number of rows that it returned or changed.
pub struct Output {
    /// Rows returned, inserted, updated or deleted.
    pub processed: u64,
    table: *mut pg_sys::SPITupleTable,
    caller: pg_sys::MemoryContext,
}

impl Output {
    pub(in crate::pg) fn of_last_statement(caller: pg_sys::MemoryContext) -> Output {
        // SAFETY: SPI sets both variables after each statement, and no other statement ran after this one.
        unsafe {
            Output {
                processed: pg_sys::SPI_processed,
                table: pg_sys::SPI_tuptable,
                caller,
            }
        }
    }

    /// Returns the number of returned rows.
    pub fn rows(&self) -> usize {
        match self.table.is_null() {
            true => 0,
            false => self.processed as usize,
        }
    }

    /// Returns the number of columns of a row.
    pub fn columns(&self) -> usize {
        match self.table.is_null() {
            true => 0,
            // SAFETY: the table is not NULL, SPI keeps it until the connection ends, which outlives this value, and
            // every table has a descriptor.
            false => unsafe { (*(*self.table).tupdesc).natts as usize },
        }
    }

    /// Returns a column's datum, in SPI's memory; rows and columns are numbered from 0. Returns None for NULL, and for
    /// a row after the last row.
    fn raw(&self, row: usize, column: usize) -> Option<pg_sys::Datum> {
        if row >= self.rows() {
            return None;
        }
        let mut null = false;
        // SAFETY: row is below the number of tuples; SPI_getbinval returns NULL for a missing column. The datum
        // points into SPI's memory, which lives as long as self.
        let datum = unsafe {
            let tuple = *(*self.table).vals.add(row);
            pg_sys::SPI_getbinval(tuple, (*self.table).tupdesc, column as i32 + 1, &mut null)
        };
        (!null).then_some(datum)
    }

    /// Returns a column of type tid, copied into the caller's memory context.
    pub fn row_address(&self, row: usize, column: usize) -> Option<Typed> {
        let datum = self.of_type(row, column, pg_sys::TIDOID)?;
        // SAFETY: `of_type` has checked that the datum is a tid, so it points to `size` bytes. The copy has as much
        // room.
        unsafe {
            let size = size_of::<pg_sys::ItemPointerData>();
            let copy = pg_sys::MemoryContextAlloc(self.caller, size);
            std::ptr::copy_nonoverlapping(datum.cast_mut_ptr::<u8>(), copy.cast(), size);
            Some(Typed::copied_address(pg_sys::Datum::from(copy)))
        }
    }

    /// Returns a column of type xid.
    pub fn xid(&self, row: usize, column: usize) -> Option<u32> {
        let datum = self.of_type(row, column, pg_sys::XIDOID)?;
        Some(datum.value() as u32)
    }

    /// Returns the type of a column, numbered from 0.
    pub fn type_of(&self, column: usize) -> pg_sys::Oid {
        // SAFETY: a statement that returns rows has a descriptor, even if it returned no row.
        unsafe { pg_sys::SPI_gettypeid((*self.table).tupdesc, column as i32 + 1) }
    }

    /// Returns a column of any type as text, in the caller's memory context.
    pub fn printed(&self, row: usize, column: usize) -> Option<Text> {
        self.raw(row, column)?;
        // SAFETY: the row and the column exist and are not null; the text is copied.
        unsafe {
            let tuple = *(*self.table).vals.add(row);
            let text = pg_sys::SPI_getvalue(tuple, (*self.table).tupdesc, column as i32 + 1);
            let spi = pg_sys::MemoryContextSwitchTo(self.caller);
            let copy = pg_sys::cstring_to_text(text);
            pg_sys::MemoryContextSwitchTo(spi);
            Some(Text::from_raw(pg_sys::Datum::from(copy)))
        }
    }

    /// Returns a column; raises an error if it does not have this type. Postgres plans a kept statement again after a
    /// change of its table, and after that a column may have another type.
    fn of_type(&self, row: usize, column: usize, wanted: pg_sys::Oid) -> Option<pg_sys::Datum> {
        let datum = self.raw(row, column)?;
        if self.type_of(column) != wanted {
            refuse();
        }
        Some(datum)
    }

    /// Returns a column of type bigint.
    pub fn number(&self, row: usize, column: usize) -> Option<i64> {
        let datum = self.of_type(row, column, pg_sys::INT8OID)?;
        Some(datum.value() as i64)
    }

    /// Returns a column of type timestamptz.
    pub fn moment(&self, row: usize, column: usize) -> Option<Timestamp> {
        let datum = self.of_type(row, column, pg_sys::TIMESTAMPTZOID)?;
        Some(datum.value() as Timestamp)
    }

    /// Returns a column of type OID or regclass.
    pub fn oid(&self, row: usize, column: usize) -> Option<pg_sys::Oid> {
        let datum = self.raw(row, column)?;
        match self.type_of(column) {
            pg_sys::OIDOID | pg_sys::REGCLASSOID => {
                Some(pg_sys::Oid::from_u32(datum.value() as u32))
            }
            _ => refuse(),
        }
    }

    /// Returns a column of type text, copied into the caller's memory context.
    pub fn text(&self, row: usize, column: usize) -> Option<Text> {
        let datum = self.of_type(row, column, pg_sys::TEXTOID)?;
        // SAFETY: `of_type` has checked that the datum is a text, which is a varlena.
        Some(unsafe { Text::from_raw(self.copy(datum)) })
    }

    /// Returns a column of type text[] without NULL, copied into the caller's memory context.
    pub fn texts(&self, row: usize, column: usize) -> Option<ArrayOf<Text>> {
        let datum = self.of_type(row, column, pg_sys::TEXTARRAYOID)?;
        // SAFETY: `of_type` has checked that the datum is an array of texts, which is a varlena.
        unsafe { ArrayOf::from_datum(self.copy(datum), false) }
    }

    /// Returns a column as a value, copied into the caller's memory context. Raises an error if a cache cannot have
    /// values of the column's current type.
    pub fn stored(&self, row: usize, column: usize) -> Option<Stored> {
        let datum = self.raw(row, column)?;
        let Some(value_type) = ValueType::from_oid(self.type_of(column)) else {
            refuse();
        };
        // SAFETY: the column's type is `value_type`, a value type of pgcache, and all of these types are varlenas.
        Some(unsafe { Stored::new(self.copy(datum), value_type) })
    }

    /// Copies a varlena into the caller's memory context and detoasts it.
    ///
    /// # Safety
    /// The datum is a varlena.
    unsafe fn copy(&self, datum: pg_sys::Datum) -> pg_sys::Datum {
        // SAFETY: the datum is a varlena, by the caller's contract. The copy is allocated in the memory context that
        // was current before SPI_connect, which outlives this value; SPI's own context is restored.
        unsafe {
            let spi = pg_sys::MemoryContextSwitchTo(self.caller);
            let copy = pg_sys::pg_detoast_datum_copy(datum.cast_mut_ptr());
            pg_sys::MemoryContextSwitchTo(spi);
            pg_sys::Datum::from(copy)
        }
    }
}
