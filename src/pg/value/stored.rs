//! A value in the form in which caches store it, with its type: the two go together wherever a
//! value goes.
//!
//! Guards that a datum reaches a table, the tier or a caller only as what it was made as. What a
//! session knows of a table is no help: whatever runs meanwhile (a loader, a trigger, another
//! session) may have changed the type of its column. So a value carries its own, and whoever takes
//! one asks for it: the statement for its parameters ([`crate::pg::value::typed`]), the direct
//! write for the column as it is then (`table::write`), the tier for the cache's.
//!
//! There are three ways to one: from an argument or a conversion, from a row whose description
//! names the type, and from the tier, which keeps the type with the bytes.

use pgrx::PgLogLevel;
use pgrx::pg_sys::Datum;
use pgrx::pg_sys::panic::ErrorReport;

use super::datum::{Room, Value, ValueType, new_varlena, varlena_bytes};
use crate::error::Error;

/// A value of one of the three types: a varlena, not NULL.
#[derive(Clone, Copy)]
pub struct Stored {
    datum: Datum,
    value_type: ValueType,
}

impl Stored {
    /// # Safety
    /// The datum is a varlena of this type, and lives as long as the call.
    #[inline(always)]
    pub(in crate::pg) unsafe fn new(datum: Datum, value_type: ValueType) -> Stored {
        Stored { datum, value_type }
    }

    /// A value as somebody gave it.
    #[inline]
    pub fn of<V: Value>(value: V) -> Stored {
        Stored {
            datum: value.raw(),
            value_type: V::TYPE,
        }
    }

    /// The value whose first `length` bytes [`Stored::bytes`] gave, copied into this room. `kind`
    /// was kept with them.
    #[inline]
    pub fn kept(room: Room, length: usize, kind: Kind) -> Stored {
        Stored {
            datum: room.into_varlena(length),
            value_type: kind.0,
        }
    }

    /// The value of which [`Stored::bytes`] gave these bytes, and which has this type.
    pub fn copied(bytes: &[u8], value_type: ValueType) -> Stored {
        Stored {
            datum: new_varlena(bytes),
            value_type,
        }
    }

    /// The type of the value.
    #[inline(always)]
    pub fn value_type(self) -> ValueType {
        self.value_type
    }

    #[inline(always)]
    pub(in crate::pg) fn raw(self) -> Datum {
        self.datum
    }

    /// What there is of it besides its type.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        varlena_bytes(self.datum)
    }

    /// Itself, where a value of this type is wanted.
    #[inline]
    pub fn wanted(self, value_type: ValueType) -> Result<Stored, Error> {
        match self.value_type == value_type {
            true => Ok(self),
            false => Err(Error::DefinitionChanged),
        }
    }
}

/// A type as the tier keeps it beside a value's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kind(ValueType);

impl Kind {
    /// None for a number that stands for no type.
    #[inline]
    pub fn of(number: u8) -> Option<Kind> {
        [ValueType::Text, ValueType::Json, ValueType::Bytes]
            .into_iter()
            .find(|&value_type| value_type as u8 == number)
            .map(Kind)
    }

    /// The type of the value.
    #[inline(always)]
    pub fn value_type(self) -> ValueType {
        self.0
    }
}

/// Ends the statement: what it was made for is no longer what it meets.
#[cold]
pub(in crate::pg) fn refuse() -> ! {
    loop {
        ErrorReport::from(Error::DefinitionChanged).report(PgLogLevel::ERROR); // does not return
    }
}
