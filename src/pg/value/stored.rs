//! A value as caches store it, together with its type; and an [`Entry`]: a value with its deadline.
//!
//! A table, the hot tier or a caller must receive a datum only as the type with which the datum was made; otherwise
//! code would read the bytes of one type as another type. The type that the session last saw in a table's column does
//! not suffice, because a loader, a trigger or another session may have changed the column. So a value carries its
//! type, and each consumer checks it: a statement for its parameters ([`crate::pg::value::typed`]), a direct write
//! against the column's present type (`table::write`), and the hot tier against the cache's type.
//!
//! A value comes from one of three sources: an argument or a conversion, a row whose descriptor names the type, or the
//! hot tier, which stores the type with the bytes.

use pgrx::PgLogLevel;
use pgrx::pg_sys::Datum;
use pgrx::pg_sys::panic::ErrorReport;

use super::datum::{Room, Value, ValueType, new_varlena, varlena_bytes};
use crate::error::Error;
use crate::pg::session::clock::Timestamp;

/// A value of one of the three types: a varlena, not NULL.
#[derive(Clone, Copy)]
pub struct Stored {
    datum: Datum,
    value_type: ValueType,
}

/// An entry of a cache, for a read or a write.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The value; None for a negative entry.
    pub value: Option<Stored>,
    /// The deadline; None if the entry never expires.
    pub deadline: Option<Timestamp>,
}

impl Stored {
    /// # Safety
    /// The datum is a varlena of this type, and lives as long as the call.
    #[inline(always)]
    pub(in crate::pg) unsafe fn new(datum: Datum, value_type: ValueType) -> Stored {
        Stored { datum, value_type }
    }

    /// Wraps a caller's value.
    #[inline]
    pub fn of<V: Value>(value: V) -> Stored {
        Stored {
            datum: value.raw(),
            value_type: V::TYPE,
        }
    }

    /// Makes a value from the first `length` bytes of this room, which are a copy of earlier [`Stored::bytes`]. `kind`
    /// was stored with the bytes.
    #[inline]
    pub fn kept(room: Room, length: usize, kind: Kind) -> Stored {
        Stored {
            datum: room.into_varlena(length),
            value_type: kind.0,
        }
    }

    /// Makes a value of this type from bytes that [`Stored::bytes`] returned.
    pub fn copied(bytes: &[u8], value_type: ValueType) -> Stored {
        Stored {
            datum: new_varlena(bytes),
            value_type,
        }
    }

    #[inline(always)]
    pub fn value_type(self) -> ValueType {
        self.value_type
    }

    #[inline(always)]
    pub(in crate::pg) fn raw(self) -> Datum {
        self.datum
    }

    /// Returns the value's bytes, without its type.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        varlena_bytes(self.datum)
    }

    /// Returns the value if it has this type; otherwise an error that says that the cache's definition has changed.
    #[inline]
    pub fn wanted(self, value_type: ValueType) -> Result<Stored, Error> {
        match self.value_type == value_type {
            true => Ok(self),
            false => Err(Error::DefinitionChanged),
        }
    }
}

/// A value's type, in the form in which the hot tier stores it beside the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kind(ValueType);

impl Kind {
    /// Returns the kind with this number; None if no type has the number.
    #[inline]
    pub fn of(number: u8) -> Option<Kind> {
        [ValueType::Text, ValueType::Json, ValueType::Bytes]
            .into_iter()
            .find(|&value_type| value_type as u8 == number)
            .map(Kind)
    }

    #[inline(always)]
    pub fn value_type(self) -> ValueType {
        self.0
    }
}

/// Raises an error: the definition has changed after the statement was prepared.
#[cold]
pub(in crate::pg) fn refuse() -> ! {
    loop {
        ErrorReport::from(Error::DefinitionChanged).report(PgLogLevel::ERROR); // does not return
    }
}
