//! The SQL values that pass between Postgres and Rust as arguments and results.
//!
//! A value is not a `String`, because the server encoding need not be UTF-8, and because pgcache passes on most cached
//! values without reading them. A [`Text`], [`Json`] or [`Bytes`] is the datum itself. Code reads its bytes only if it
//! needs them: always for a key, rarely for a value.

use std::ptr::NonNull;

use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::nullable::Nullable;
use pgrx::{FromDatum, pg_sys};

use crate::error::Error;
use crate::pg::memory;

/// The three types of values, as SQL arguments and in a cache's column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    Text,
    Json,
    Bytes,
}

impl ValueType {
    /// Returns the value type with this OID; None if a cache's values cannot have it.
    pub fn from_oid(oid: pg_sys::Oid) -> Option<ValueType> {
        match oid {
            pg_sys::TEXTOID => Some(ValueType::Text),
            pg_sys::JSONBOID => Some(ValueType::Json),
            pg_sys::BYTEAOID => Some(ValueType::Bytes),
            _ => None,
        }
    }

    /// Returns the type of the values in a column of this type. A varchar column holds texts, and pgcache treats json
    /// as jsonb. Returns None for a column that cannot hold a cache's values.
    pub fn of_column(oid: pg_sys::Oid) -> Option<ValueType> {
        match oid {
            pg_sys::VARCHAROID => Some(ValueType::Text),
            pg_sys::JSONOID => Some(ValueType::Json),
            other => ValueType::from_oid(other),
        }
    }

    /// Returns the type of the values in a column of this type if its datums need no conversion. Returns None for json,
    /// whose datums are text, and for any other type.
    #[inline(always)]
    pub fn of_datums(oid: pg_sys::Oid) -> Option<ValueType> {
        match oid {
            pg_sys::VARCHAROID => Some(ValueType::Text),
            other => ValueType::from_oid(other),
        }
    }

    /// Returns the OID of the type.
    pub fn oid(self) -> pg_sys::Oid {
        match self {
            ValueType::Text => pg_sys::TEXTOID,
            ValueType::Json => pg_sys::JSONBOID,
            ValueType::Bytes => pg_sys::BYTEAOID,
        }
    }

    /// Returns the OID of the type's array type.
    pub fn array_oid(self) -> pg_sys::Oid {
        match self {
            ValueType::Text => pg_sys::TEXTARRAYOID,
            ValueType::Json => pg_sys::JSONBARRAYOID,
            ValueType::Bytes => pg_sys::BYTEAARRAYOID,
        }
    }

    /// Returns the type's name in a statement.
    pub fn sql(self) -> &'static str {
        match self {
            ValueType::Text => "pg_catalog.text",
            ValueType::Json => "pg_catalog.jsonb",
            ValueType::Bytes => "pg_catalog.bytea",
        }
    }
}

/// A value of one of the three types. API functions that differ only in this type share one generic body.
pub trait Value: Copy {
    const TYPE: ValueType;
    /// # Safety
    /// The datum is a varlena of this type.
    unsafe fn from_raw(datum: pg_sys::Datum) -> Self;
    fn raw(self) -> pg_sys::Datum;
}

macro_rules! value_datum {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name(pg_sys::Datum);

        impl Value for $name {
            const TYPE: ValueType = ValueType::$name;

            unsafe fn from_raw(datum: pg_sys::Datum) -> Self {
                $name(datum)
            }

            fn raw(self) -> pg_sys::Datum {
                self.0
            }
        }

        impl FromDatum for $name {
            unsafe fn from_polymorphic_datum(
                datum: pg_sys::Datum,
                is_null: bool,
                _: pg_sys::Oid,
            ) -> Option<Self> {
                (!is_null).then_some($name(datum))
            }
        }

        argument!($name);

        // SAFETY: the datum is a varlena of this type, and Postgres or this module made it.
        unsafe impl BoxRet for $name {
            unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
                // SAFETY: the datum has the type that the SQL declaration returns, and lives in the memory context of
                // the call, where Postgres expects it.
                unsafe { fcinfo.return_raw_datum(self.0) }
            }
        }
    };
}

/// Allows a type with `FromDatum` as an argument of a `#[pg_extern]` function.
macro_rules! argument {
    ($name:ident) => {
        // SAFETY: the SQL declaration names the type that `from_polymorphic_datum` reads; the
        // signature lint compares the two.
        unsafe impl<'fcx> ArgAbi<'fcx> for $name {
            unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
                // SAFETY: reached only for a non-null argument of a STRICT function, or of a function that takes the
                // argument without Option; pgcache has neither.
                unsafe {
                    arg.unbox_arg_using_from_datum()
                        .unwrap_or($name(pg_sys::Datum::null()))
                }
            }

            unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
                // SAFETY: the SQL declaration, which a test compares with the Rust declaration, gives the argument this
                // type.
                unsafe { arg.unbox_arg_using_from_datum().into() }
            }
        }
    };
}

value_datum! {
    /// A `text`, in the server's encoding.
    Text
}
value_datum! {
    /// A `jsonb`.
    Json
}
value_datum! {
    /// A `bytea`.
    Bytes
}

impl Text {
    /// Returns the text's bytes, in the server's encoding.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        varlena_bytes(self.0)
    }

    /// Makes a text from these bytes, which must be valid in the server's encoding.
    pub fn new(bytes: &[u8]) -> Text {
        Text(new_varlena(bytes))
    }

    /// Returns the text as UTF-8. Used for names and settings, which pgcache itself compares or shows.
    pub fn to_string_lossy(self) -> String {
        crate::pg::encoding::decode(self.bytes())
    }
}

impl Bytes {
    /// Makes a bytea from these bytes.
    pub fn new(bytes: &[u8]) -> Bytes {
        Bytes(new_varlena(bytes))
    }
}

/// Returns the payload of a varlena, detoasted if needed.
///
/// The borrow lasts as long as the datum's memory context, which outlives the call.
#[inline]
pub(in crate::pg) fn varlena_bytes<'a>(datum: pg_sys::Datum) -> &'a [u8] {
    // SAFETY: every caller has a varlena datum. A detoasted copy is allocated in the current memory context and lives
    // as long as the call. Most datums are not toasted, so they skip the guarded call.
    unsafe {
        let mut varlena: *mut pg_sys::varlena = datum.cast_mut_ptr();
        if pgrx::varlena::varatt_is_4b_c(varlena) || pgrx::varlena::varatt_is_1b_e(varlena) {
            varlena = pg_sys::pg_detoast_datum_packed(varlena);
        }
        std::slice::from_raw_parts(
            pgrx::varlena::vardata_any(varlena).cast(),
            pgrx::varlena::varsize_any_exhdr(varlena),
        )
    }
}

/// Makes a varlena with this payload, in the current memory context.
#[inline]
pub(in crate::pg) fn new_varlena(bytes: &[u8]) -> pg_sys::Datum {
    let mut room = Room::of(bytes.len());
    room.bytes().copy_from_slice(bytes);
    room.into_varlena(bytes.len())
}

/// Memory for a varlena whose payload is not yet written.
pub struct Room {
    varlena: NonNull<u8>,
    payload: usize,
}

impl Room {
    /// Allocates room for this many bytes of payload, zeroed.
    #[inline]
    pub fn of(payload: usize) -> Room {
        let varlena = memory::palloc(pg_sys::VARHDRSZ + payload);
        // SAFETY: the payload was allocated with the header before it.
        unsafe { varlena.add(pg_sys::VARHDRSZ).write_bytes(0, payload) };
        Room { varlena, payload }
    }

    /// Returns the payload for the caller to fill.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `payload` bytes after the header belong to this value and are initialised.
        unsafe {
            let payload = self.varlena.add(pg_sys::VARHDRSZ).as_ptr();
            std::slice::from_raw_parts_mut(payload, self.payload)
        }
    }

    /// Returns the varlena, whose payload is the first `length` bytes of the room.
    #[inline]
    pub fn into_varlena(self, length: usize) -> pg_sys::Datum {
        let size = pg_sys::VARHDRSZ + length.min(self.payload);
        // SAFETY: the header is allocated, and the size is at most the allocated one.
        unsafe { pgrx::varlena::set_varsize_4b(self.varlena.as_ptr().cast(), size as i32) };
        pg_sys::Datum::from(self.varlena.as_ptr())
    }
}

/// A `name` argument: an identifier, in the server's encoding.
#[derive(Clone)]
pub struct Name(std::ffi::CString);

impl Name {
    /// Returns the identifier.
    pub fn into_inner(self) -> std::ffi::CString {
        self.0
    }
}

impl FromDatum for Name {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        _: pg_sys::Oid,
    ) -> Option<Self> {
        // SAFETY: the SQL declaration gives the argument type name: bytes that end with a NUL.
        (!is_null)
            .then(|| Name(unsafe { std::ffi::CStr::from_ptr(datum.cast_mut_ptr()).to_owned() }))
    }
}

// SAFETY: the SQL declaration names the type that `from_polymorphic_datum` reads; the signature
// lint compares the two.
unsafe impl<'fcx> ArgAbi<'fcx> for Name {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: reached only for a non-null argument of a STRICT function or of a function that takes it without
        // Option; pgcache has neither.
        unsafe { arg.unbox_arg_using_from_datum() }.unwrap_or(Name(std::ffi::CString::default()))
    }

    unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
        // SAFETY: the SQL declaration, which a test compares with the Rust declaration, gives the argument this type.
        unsafe { arg.unbox_arg_using_from_datum().into() }
    }
}

/// Makes a C string from these bytes, in the current memory context.
pub fn new_c_string(bytes: &[u8]) -> pg_sys::Datum {
    let string = memory::palloc(bytes.len() + 1);
    // SAFETY: the memory has room for the bytes and a NUL, and does not overlap the argument.
    unsafe {
        string.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        string.add(bytes.len()).write(0);
    }
    pg_sys::Datum::from(string.as_ptr())
}

/// A one-dimensional array argument without nulls.
pub struct ArrayOf<V: Value>(pg_sys::Datum, std::marker::PhantomData<V>);

impl<V: Value> FromDatum for ArrayOf<V> {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        _: pg_sys::Oid,
    ) -> Option<Self> {
        (!is_null).then_some(ArrayOf(datum, std::marker::PhantomData))
    }
}

// SAFETY: the SQL declaration names the array type of V; the signature lint compares the two.
unsafe impl<'fcx, V: Value> ArgAbi<'fcx> for ArrayOf<V> {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: reached only for an argument that is not null, whose type the SQL declaration names. The null datum
        // is never used, because the argument is not null.
        unsafe {
            arg.unbox_arg_using_from_datum()
                .unwrap_or(ArrayOf(pg_sys::Datum::null(), std::marker::PhantomData))
        }
    }

    unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
        // SAFETY: the SQL declaration, which a test compares with the Rust declaration, gives the argument this type.
        unsafe { arg.unbox_arg_using_from_datum().into() }
    }
}

impl<V: Value> ArrayOf<V> {
    /// Returns the elements in order, or an error if the array is not a list without NULL. `name` is the argument's
    /// name, for the error.
    pub fn elements(&self, name: &'static str) -> Result<Vec<V>, Error> {
        // SAFETY: the datum is an array of V's type, as declared in SQL.
        unsafe {
            match array_elements(self.0, V::TYPE) {
                Ok(elements) => Ok(memory::collect(
                    elements.into_iter().map(|datum| V::from_raw(datum)),
                )),
                Err(NoList::Dimensions) => Err(Error::ArrayDimensions(name)),
                Err(NoList::Null) => Err(Error::NullElement(name)),
            }
        }
    }
}

/// The reason why an array is not a list of values.
pub(in crate::pg) enum NoList {
    Dimensions,
    Null,
}

/// Returns the elements of an array of varlenas, in order.
///
/// # Safety
/// `array` is an array of this type.
pub(in crate::pg) unsafe fn array_elements(
    array: pg_sys::Datum,
    of: ValueType,
) -> Result<Vec<pg_sys::Datum>, NoList> {
    // SAFETY: deconstruct_array fills `count` datums and null flags, palloc'd in the call's memory context.
    unsafe {
        let array: *mut pg_sys::ArrayType = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast();
        if (*array).ndim > 1 {
            return Err(NoList::Dimensions);
        }
        let (mut datums, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        pg_sys::deconstruct_array(
            array,
            of.oid(),
            -1,
            false,
            b'i' as i8,
            &mut datums,
            &mut nulls,
            &mut count,
        );
        let count = count as usize;
        if (0..count).any(|at| *nulls.add(at)) {
            return Err(NoList::Null);
        }
        Ok(memory::collect((0..count).map(|at| *datums.add(at))))
    }
}

/// Returns a row address that precedes all rows of a block: a datum of type tid with offset 0.
pub(in crate::pg) fn row_address(block: u32) -> pg_sys::Datum {
    // SAFETY: a palloc'd address has room for its three numbers.
    unsafe {
        let address: pg_sys::ItemPointer =
            pg_sys::palloc0(size_of::<pg_sys::ItemPointerData>()).cast();
        (*address).ip_blkid.bi_hi = (block >> 16) as u16;
        (*address).ip_blkid.bi_lo = block as u16;
        pg_sys::Datum::from(address)
    }
}

/// Makes an array of varlenas of this type, for a statement's parameter.
pub(in crate::pg) fn new_array(elements: &mut [pg_sys::Datum], of: ValueType) -> pg_sys::Datum {
    // SAFETY: the elements are datums of type `of`: varlena, int-aligned, passed by reference.
    unsafe {
        pg_sys::Datum::from(pg_sys::construct_array(
            elements.as_mut_ptr(),
            elements.len() as i32,
            of.oid(),
            -1,
            false,
            b'i' as i8,
        ))
    }
}

/// Makes a text array from these bytes, with one allocation for all elements. The bytes need not be valid text.
pub(in crate::pg) fn new_text_array(texts: &[&[u8]]) -> pg_sys::Datum {
    const HEADER: usize = 4;
    let size = |text: &[u8]| (HEADER + text.len()).next_multiple_of(HEADER);
    let total: usize = texts.iter().map(|text| size(text)).sum();
    let mut block: Vec<u32> = vec![0; total / HEADER];
    let base: *mut u8 = block.as_mut_ptr().cast();
    let mut at = 0;
    let mut elements = Vec::with_capacity(texts.len());
    for text in texts {
        // SAFETY: the sizes add up to the block's size; each element begins aligned for its header.
        unsafe {
            let element = base.add(at);
            pgrx::varlena::set_varsize_4b(element.cast(), (HEADER + text.len()) as i32);
            element
                .add(HEADER)
                .copy_from_nonoverlapping(text.as_ptr(), text.len());
            elements.push(pg_sys::Datum::from(element));
        }
        at += size(text);
    }
    new_array(&mut elements, ValueType::Text) // copies the elements out of the block
}
