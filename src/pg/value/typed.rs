//! Datums with their types: the parameters of a statement, and the result columns of a function.
//!
//! Code that treated a datum as another type would read arbitrary memory. So a plan compares the types of its arguments
//! with its parameters' types, and a result compares the types of its columns with the types in the query or in the
//! function's declaration.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::{IntoDatum, PgLogLevel};

use super::datum::{Text, Value, ValueType, new_array, new_text_array, new_varlena, row_address};
use super::stored::Stored;
use crate::error::Error;
use crate::pg::memory;
use crate::pg::session::clock::Timestamp;

/// A datum with its type, or NULL, which fits every type.
#[derive(Clone, Copy)]
pub struct Typed(Option<(Datum, Oid)>);

impl Typed {
    pub const NULL: Typed = Typed(None);

    /// Makes a bigint.
    pub fn number(number: i64) -> Typed {
        Typed(Some((Datum::from(number), pg_sys::INT8OID)))
    }

    /// Makes a row of this composite type.
    pub fn row(row: Datum, kind: Oid) -> Typed {
        Typed(Some((row, kind)))
    }

    /// Makes a timestamptz; None is NULL.
    pub fn moment(moment: Option<Timestamp>) -> Typed {
        Typed(moment.map(|moment| (Datum::from(moment), pg_sys::TIMESTAMPTZOID)))
    }

    pub fn oid(oid: Oid) -> Typed {
        Typed(Some((Datum::from(oid), pg_sys::OIDOID)))
    }

    /// Makes a value of any type that pgrx knows.
    pub fn of<T: IntoDatum>(value: Option<T>) -> Typed {
        Typed(
            value
                .and_then(T::into_datum)
                .map(|datum| (datum, T::type_oid())),
        )
    }

    /// Makes a text from bytes, which need not be valid text, because the statement only compares them.
    pub fn bound(bytes: &[u8]) -> Typed {
        Typed(Some((new_varlena(bytes), pg_sys::TEXTOID)))
    }

    /// Makes a row address that precedes all rows of a block.
    pub fn address(block: u32) -> Typed {
        Typed(Some((row_address(block), pg_sys::TIDOID)))
    }

    /// # Safety
    /// The datum is of type tid and outlives the result.
    pub(in crate::pg) unsafe fn copied_address(address: Datum) -> Typed {
        Typed(Some((address, pg_sys::TIDOID)))
    }

    /// Makes an array of texts.
    pub fn texts(texts: impl Iterator<Item = Text>) -> Typed {
        let mut datums = memory::collect(texts.map(Text::raw));
        let array = new_array(&mut datums, ValueType::Text);
        Typed(Some((array, pg_sys::TEXTARRAYOID)))
    }

    /// Makes an array of texts from these bytes, which need not be valid text, because the statement only compares
    /// them.
    pub fn byte_texts(texts: &[&[u8]]) -> Typed {
        Typed(Some((new_text_array(texts), pg_sys::TEXTARRAYOID)))
    }

    /// Makes an array. Fails if one of the values has another type.
    pub fn values(
        values: impl Iterator<Item = Stored>,
        value_type: ValueType,
    ) -> Result<Typed, Error> {
        let mut datums = memory::list(values.size_hint().0);
        for value in values {
            memory::push(&mut datums, value.wanted(value_type)?.raw());
        }
        let array = new_array(&mut datums, value_type);
        Ok(Typed(Some((array, value_type.array_oid()))))
    }

    /// Returns the datum for a parameter or column of this type, where Some(None) means NULL; None if the types do not
    /// fit.
    #[inline]
    pub(in crate::pg) fn fit(self, place: Oid) -> Option<Option<Datum>> {
        match self.0 {
            None => Some(None),
            Some((datum, kind)) => (kind == place || both_oids(kind, place)).then_some(Some(datum)),
        }
    }
}

/// Returns whether `kind` is `oid` and `place` is a type with the same representation, so that a parameter of type
/// `place` accepts the OID.
fn both_oids(kind: Oid, place: Oid) -> bool {
    kind == pg_sys::OIDOID && matches!(place, pg_sys::REGCLASSOID | pg_sys::REGTYPEOID)
}

impl From<Text> for Typed {
    #[inline]
    fn from(text: Text) -> Typed {
        Typed::from(Stored::of(text))
    }
}

impl From<Stored> for Typed {
    #[inline]
    fn from(stored: Stored) -> Typed {
        Typed(Some((stored.raw(), stored.value_type().oid())))
    }
}

impl<T: Into<Typed>> From<Option<T>> for Typed {
    #[inline]
    fn from(value: Option<T>) -> Typed {
        value.map_or(Typed::NULL, T::into)
    }
}

/// Returns the types of a row's columns.
///
/// # Safety
/// `descriptor` comes from Postgres.
pub(in crate::pg) unsafe fn types_of<const N: usize>(descriptor: pg_sys::TupleDesc) -> [Oid; N] {
    // SAFETY: the function returns InvalidOid for a missing column; a sequence of plain values.
    unsafe {
        let named =
            |i: usize| crate::pg::memory::unguarded::SPI_gettypeid(descriptor, i as i32 + 1);
        crate::pg::memory::unguarded::guarded(|| std::array::from_fn(named))
    }
}

/// Returns a row as arrays of datums and null flags; raises 42804 if a column has another type.
pub(in crate::pg) fn datums<const N: usize>(
    row: [Typed; N],
    types: &[Oid; N],
) -> ([Datum; N], [bool; N]) {
    let (mut values, mut nulls) = ([Datum::null(); N], [true; N]);
    for (at, column) in row.into_iter().enumerate() {
        match column.fit(types[at]) {
            Some(None) => {}
            Some(Some(datum)) => (values[at], nulls[at]) = (datum, false),
            None => refuse_columns(),
        }
    }
    (values, nulls)
}

/// Raises 42804, because a column's type differs from the type that the query or the declaration names.
#[cold]
pub(in crate::pg) fn refuse_columns() -> ! {
    loop {
        ErrorReport::from(Error::WrongColumns).report(PgLogLevel::ERROR); // does not return
    }
}
