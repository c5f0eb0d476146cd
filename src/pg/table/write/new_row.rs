//! Builds the row that a direct write stores: its new columns, and the columns that it keeps from the current row.

use pgrx::pg_sys::{self, Datum};
use pgrx::varlena::{varatt_is_1b_e, varatt_is_4b_c, varatt_is_4b_u, varsize_4b};

use super::writer::Writer;
use crate::pg::memory::unguarded;
use crate::pg::session::clock::Timestamp;
use crate::pg::table::target::Target;
use crate::pg::value::stored::{Entry, Stored};

/// The change to make to a row.
#[derive(Clone, Copy)]
pub enum RowAction {
    Keep,
    /// Writes a new row, or a new version of the current row.
    Put(Entry),
    /// Writes a new version with this value and the same deadline.
    Revalue(Option<Stored>),
    /// Writes a new version with this deadline and the same value.
    Redate(Option<Timestamp>),
    Remove,
}

/// The new fields of a row version; None keeps the current row's field.
#[derive(Clone, Copy)]
pub struct Version {
    pub value: Option<Option<Stored>>,
    pub deadline: Option<Option<Timestamp>>,
}

impl From<&Entry> for Version {
    #[inline(always)]
    fn from(&Entry { value, deadline }: &Entry) -> Version {
        Version {
            value: Some(value),
            deadline: Some(deadline),
        }
    }
}

/// Fills the slot `fresh` with the row to write. An updated row keeps its columns that the user added, and the fields
/// that `new` lacks; in an inserted row these are NULL. Dropped columns are always NULL. Fills nothing and returns
/// false if the value's type differs from the column's, or if the value is NULL and the column is NOT NULL.
///
/// # Safety
/// Called inside `guarded`; the writer is open. With `updates` the slot `present` holds the current row, and keeps it
/// until the new row is written.
pub unsafe fn fill(writer: &Writer, key: Datum, updates: bool, new: &Version) -> bool {
    let Writer {
        target,
        present,
        fresh,
        value_type,
        ..
    } = *writer;
    match new.value {
        Some(Some(value)) if value.value_type() != value_type => return false,
        Some(None) if !target.value_nullable => return false,
        _ => {}
    }
    // SAFETY: the arrays of the slot have as many elements as the table has columns; each column's number is within
    // them.
    unsafe {
        unguarded::clear_slot(fresh);
        for at in 0..target.columns as usize {
            *(*fresh).tts_isnull.add(at) = true;
        }
        put_column(fresh, target.key, Some(key));
        let keeps = new.value.is_none() || new.deadline.is_none();
        if updates && (keeps || !target.more.is_empty() || is_long(target, key)) {
            unguarded::materialize_slot(present);
            for column in [target.key, target.value, target.deadline] {
                put_column(fresh, column, unguarded::column(present, column));
            }
            for &column in &target.more {
                put_column(fresh, column, unguarded::column(present, column));
            }
        } else {
            unguarded::clear_slot(present);
        }
        if let Some(value) = new.value {
            put_column(fresh, target.value, value.map(Stored::raw));
        }
        if let Some(deadline) = new.deadline {
            put_column(fresh, target.deadline, target.deadline_form.write(deadline));
        }
        unguarded::ExecStoreVirtualTuple(fresh);
    }
    true
}

/// Returns whether a table may store a key in a different form than `key`, for example compressed. An updated row must
/// then keep the stored form of its key; otherwise the update would count as a change of the key, and add the row to
/// the index again.
///
/// # Safety
/// `key` is a datum of the target's key type.
#[inline(always)]
unsafe fn is_long(target: &Target, key: Datum) -> bool {
    /// The longest varlena, header included, that is always stored with a header of one byte.
    const SHORT: usize = 130;
    if !target.key_type.is_text() {
        return false;
    }
    let varlena: *const pg_sys::varlena = key.cast_mut_ptr();
    // SAFETY: `key` is a varlena, by the caller's contract, so the code may read its header; it reads the size only if
    // the header has one.
    unsafe {
        varatt_is_1b_e(varlena)
            || varatt_is_4b_c(varlena)
            || (varatt_is_4b_u(varlena) && varsize_4b(varlena) > SHORT)
    }
}

/// # Safety
/// Called inside `guarded`; the slot has a column of this number.
#[inline(always)]
unsafe fn put_column(slot: *mut pg_sys::TupleTableSlot, number: i16, datum: Option<Datum>) {
    let at = number as usize - 1;
    // SAFETY: the slot has a column of this number, by the caller's contract, so both arrays have room for it.
    unsafe {
        *(*slot).tts_isnull.add(at) = datum.is_none();
        *(*slot).tts_values.add(at) = datum.unwrap_or(Datum::null());
    }
}
