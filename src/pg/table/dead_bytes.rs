//! Counts the bytes that a write leaves dead until VACUUM reclaims them.
//!
//! It does not count an old row version that a HOT update replaced, because the next session that visits the page
//! prunes it. Rows that were deleted or moved to another page are not pruned in this way, nor are long values in the
//! TOAST table. Postgres' own count of dead rows does not suffice: it is up to a second late, and it ignores the size
//! of a row, which may be eight bytes or a whole page.

use std::ops::AddAssign;

use pgrx::pg_sys::{self, Datum, HeapTuple, Oid};
use pgrx::varlena::varatt_is_1b_e;

use crate::pg::events::{self, DeadBytes};
use crate::pg::memory::unguarded;

/// A row's value in the TOAST table: its size and its id; both 0 if the value is in the row itself.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Toasted {
    bytes: usize,
    id: u32,
}

impl AddAssign for DeadBytes {
    fn add_assign(&mut self, more: DeadBytes) {
        // Wraps instead of panicking, because code that must not fail performs the addition.
        self.rows = self.rows.wrapping_add(more.rows);
        self.toast = self.toast.wrapping_add(more.toast);
    }
}

impl DeadBytes {
    /// Emits the bytes as an event of this table, unless both numbers are 0.
    pub fn emit(self, relation: Oid) {
        if self.rows != 0 || self.toast != 0 {
            events::emit(|observer| (observer.died)(relation, self));
        }
    }

    /// Returns the bytes that become dead when the row in a slot is removed.
    ///
    /// # Safety
    /// Called inside `unguarded::guarded`; the slot is one of the heap's and holds a row of a table whose column with
    /// the number `value` is a varlena.
    pub unsafe fn with_row(slot: *mut pg_sys::TupleTableSlot, value: i16) -> DeadBytes {
        // SAFETY: both kinds of the heap's slots have the same beginning; the caller's contract allows the call of
        // `column`.
        unsafe {
            let stored = (*slot.cast::<pg_sys::HeapTupleTableSlot>()).tuple;
            if stored.is_null() {
                return DeadBytes::default();
            }
            let toasted = match has_toasted(stored) {
                true => Toasted::of(unguarded::column(slot, value)),
                false => Toasted::default(),
            };
            DeadBytes {
                rows: (*stored).t_len as usize,
                toast: toasted.bytes,
            }
        }
    }

    /// Returns the bytes that become dead when `old` is replaced by `new`, or removed if `new` is NULL. `value` returns
    /// the number of the value column; this function calls it only if the row has data in the TOAST table.
    ///
    /// # Safety
    /// Both are rows of a table with this descriptor, in stored form, and `old` is not NULL; the column of that number
    /// is a varlena.
    pub unsafe fn between(
        old: HeapTuple,
        new: HeapTuple,
        descriptor: pg_sys::TupleDesc,
        value: impl FnOnce() -> Option<i16>,
    ) -> DeadBytes {
        // SAFETY: headers of rows; heap_getattr reads a column that the table has.
        unsafe {
            let stays = !new.is_null()
                && u32::from((*(*new).t_data).t_infomask2) & pg_sys::HEAP_ONLY_TUPLE != 0;
            let toasted_of = |row: HeapTuple, value: i16| {
                if row.is_null() {
                    return Toasted::default();
                }
                let mut null = true;
                let datum = pg_sys::heap_getattr(row, i32::from(value), descriptor, &mut null);
                Toasted::of((!null).then_some(datum))
            };
            let toast = match has_toasted(old).then(value).flatten() {
                Some(value) => {
                    let (before, after) = (toasted_of(old, value), toasted_of(new, value));
                    if before == after { 0 } else { before.bytes }
                }
                None => 0,
            };
            DeadBytes {
                rows: if stays { 0 } else { (*old).t_len as usize },
                toast,
            }
        }
    }
}

/// Returns whether any column of a row is in the TOAST table.
///
/// # Safety
/// `row` is a row of a table.
#[inline(always)]
unsafe fn has_toasted(row: HeapTuple) -> bool {
    // SAFETY: a row of a table, by the caller's contract, has its header at `t_data`.
    unsafe { u32::from((*(*row).t_data).t_infomask) & pg_sys::HEAP_HASEXTERNAL != 0 }
}

impl Toasted {
    /// # Safety
    /// The datum is a varlena in the form in which a row stores it.
    unsafe fn of(datum: Option<Datum>) -> Toasted {
        /// The tag of a pointer into a TOAST table; a row never stores other tags.
        const ON_DISK: u8 = pg_sys::vartag_external::VARTAG_ONDISK as u8;
        /// The upper two bits of the size hold the compression method.
        const SIZE: u32 = (1 << 30) - 1;
        let Some(datum) = datum else {
            return Toasted::default();
        };
        let varlena: *const pg_sys::varlena = datum.cast_mut_ptr();
        // SAFETY: reads the header, the tag that follows, and then the pointer, which is not aligned.
        unsafe {
            let external: *const pg_sys::varattrib_1b_e = varlena.cast();
            if !varatt_is_1b_e(varlena) || (*external).va_tag != ON_DISK {
                return Toasted::default();
            }
            let pointer = (&raw const (*external).va_data)
                .cast::<pg_sys::varatt_external>()
                .read_unaligned();
            Toasted {
                bytes: (pointer.va_extinfo & SIZE) as usize,
                id: pointer.va_valueid.to_u32(),
            }
        }
    }
}
