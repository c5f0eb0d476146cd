//! How SQL values cross between Postgres and Rust: arguments, results, rows.
//!
//! Not `String`: a server encoding need not be UTF-8, and a cached value is mostly passed through
//! without a look at it. A [`Text`], [`Json`] or [`Bytes`] is the datum itself; bytes are taken out
//! of it only where somebody needs them (the key always, the value rarely).

use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::nullable::Nullable;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{FromDatum, PgLogLevel, pg_sys};

use crate::error::Error;

/// The three types a value can have, in SQL's arguments and in a cache's column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    Text,
    Json,
    Bytes,
}

impl ValueType {
    pub fn from_oid(oid: pg_sys::Oid) -> Option<ValueType> {
        match oid {
            pg_sys::TEXTOID => Some(ValueType::Text),
            pg_sys::JSONBOID => Some(ValueType::Json),
            pg_sys::BYTEAOID => Some(ValueType::Bytes),
            _ => None,
        }
    }

    pub fn oid(self) -> pg_sys::Oid {
        match self {
            ValueType::Text => pg_sys::TEXTOID,
            ValueType::Json => pg_sys::JSONBOID,
            ValueType::Bytes => pg_sys::BYTEAOID,
        }
    }

    pub fn array_oid(self) -> pg_sys::Oid {
        match self {
            ValueType::Text => pg_sys::TEXTARRAYOID,
            ValueType::Json => pg_sys::JSONBARRAYOID,
            ValueType::Bytes => pg_sys::BYTEAARRAYOID,
        }
    }

    /// The name as a statement spells it.
    pub fn sql(self) -> &'static str {
        match self {
            ValueType::Text => "pg_catalog.text",
            ValueType::Json => "pg_catalog.jsonb",
            ValueType::Bytes => "pg_catalog.bytea",
        }
    }
}

/// A value in one of the three types: what the api's families of functions differ in.
pub trait Value: Copy {
    const TYPE: ValueType;
    fn from_raw(datum: pg_sys::Datum) -> Self;
    fn raw(self) -> pg_sys::Datum;
}

macro_rules! value_datum {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name(pg_sys::Datum);

        impl Value for $name {
            const TYPE: ValueType = ValueType::$name;

            fn from_raw(datum: pg_sys::Datum) -> Self {
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

        // SAFETY: the datum is a varlena of this type, made by Postgres or by this module.
        unsafe impl BoxRet for $name {
            unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
                // SAFETY: as above; it lives in the memory context of the call.
                unsafe { fcinfo.return_raw_datum(self.0) }
            }
        }
    };
}

/// Lets a type with `FromDatum` stand in the argument list of a `#[pg_extern]` function.
macro_rules! argument {
    ($name:ident) => {
        // SAFETY: the SQL declaration names the type that `from_polymorphic_datum` reads; the
        // signature lint compares the two.
        unsafe impl<'fcx> ArgAbi<'fcx> for $name {
            unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
                // SAFETY: only reached for a non-null argument of a STRICT function or of a
                // function that takes it without Option; pgcache has neither.
                unsafe {
                    arg.unbox_arg_using_from_datum()
                        .unwrap_or($name(pg_sys::Datum::null()))
                }
            }

            unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
                // SAFETY: the argument has the declared type.
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
    /// The characters' bytes, in the server's encoding.
    pub fn bytes(&self) -> &[u8] {
        varlena_bytes(self.0)
    }

    /// A new text with these bytes, which must be valid in the server's encoding.
    pub fn new(bytes: &[u8]) -> Text {
        Text(new_varlena(bytes))
    }

    /// The text as UTF-8, for words that pgcache itself compares or prints (names, settings).
    pub fn to_string_lossy(self) -> String {
        super::encoding::decode(self.bytes())
    }
}

/// The payload of a varlena, detoasted when needed.
///
/// The borrow is as long as the datum's own memory context lives, which is at least the call.
pub fn varlena_bytes<'a>(datum: pg_sys::Datum) -> &'a [u8] {
    // SAFETY: every caller holds a varlena datum. A detoasted copy is allocated in the current
    // memory context and lives as long as the call. Most datums are plain already: they are spared
    // the guarded call.
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

/// A new varlena with this payload, in the current memory context.
pub fn new_varlena(bytes: &[u8]) -> pg_sys::Datum {
    // SAFETY: the length is checked by palloc's own limit (1 GB), which raises an error.
    unsafe {
        pg_sys::Datum::from(pg_sys::cstring_to_text_with_len(
            bytes.as_ptr().cast(),
            i32::try_from(bytes.len()).unwrap_or(i32::MAX),
        ))
    }
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
        // SAFETY: as for the scalar types; an empty array stands in for a null that cannot come.
        unsafe {
            arg.unbox_arg_using_from_datum()
                .unwrap_or(ArrayOf(pg_sys::Datum::null(), std::marker::PhantomData))
        }
    }

    unsafe fn unbox_nullable_arg(arg: Arg<'_, 'fcx>) -> Nullable<Self> {
        // SAFETY: the argument has the declared type.
        unsafe { arg.unbox_arg_using_from_datum().into() }
    }
}

impl<V: Value> ArrayOf<V> {
    /// The elements in order. `name` is the argument's, for the error.
    pub fn elements(&self, name: &'static str) -> Result<Vec<V>, Error> {
        // SAFETY: the datum is an array of V's type, as declared in SQL. deconstruct_array fills
        // `count` datums and null flags, palloc'd in the call's memory context.
        unsafe {
            let array: *mut pg_sys::ArrayType =
                pg_sys::pg_detoast_datum(self.0.cast_mut_ptr()).cast();
            if (*array).ndim > 1 {
                return Err(Error::ArrayDimensions(name));
            }
            let (mut datums, mut nulls, mut count) =
                (std::ptr::null_mut(), std::ptr::null_mut(), 0);
            pg_sys::deconstruct_array(
                array,
                V::TYPE.oid(),
                -1,
                false,
                b'i' as i8,
                &mut datums,
                &mut nulls,
                &mut count,
            );
            (0..count as usize)
                .map(|i| match *nulls.add(i) {
                    true => Err(Error::NullElement(name)),
                    false => Ok(V::from_raw(*datums.add(i))),
                })
                .collect()
        }
    }
}

/// The address before all rows of a block, a datum of type tid.
pub fn row_address(block: u32) -> pg_sys::Datum {
    // SAFETY: a palloc'd address has room for its three numbers.
    unsafe {
        let address: pg_sys::ItemPointer =
            pg_sys::palloc0(size_of::<pg_sys::ItemPointerData>()).cast();
        (*address).ip_blkid.bi_hi = (block >> 16) as u16;
        (*address).ip_blkid.bi_lo = block as u16;
        pg_sys::Datum::from(address)
    }
}

/// A new array of varlenas of this type, for a statement's parameter.
pub fn new_array(elements: &mut [pg_sys::Datum], of: ValueType) -> pg_sys::Datum {
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

/// The same of these texts, with one allocation for all elements.
pub fn new_text_array(texts: &[&[u8]]) -> pg_sys::Datum {
    const HEADER: usize = 4;
    let size = |text: &[u8]| (HEADER + text.len()).next_multiple_of(HEADER);
    let total: usize = texts.iter().map(|text| size(text)).sum();
    let mut block: Vec<u32> = vec![0; total / HEADER];
    let base: *mut u8 = block.as_mut_ptr().cast();
    let mut at = 0;
    let mut elements = Vec::with_capacity(texts.len());
    for text in texts {
        // SAFETY: the sizes add up to the block's; each element begins aligned for its header.
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
    new_array(&mut elements, ValueType::Text) // copies them out of the block
}

/// One row of several columns, for a function with OUT parameters.
pub struct Record<const N: usize>(pub [Option<pg_sys::Datum>; N]);

// SAFETY: the SQL declaration has N OUT parameters of the columns' types; the lint compares N.
unsafe impl<const N: usize> BoxRet for Record<N> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        let (mut values, mut nulls) = columns(self.0);
        // SAFETY: get_call_result_type gives a tuple descriptor for any function with OUT
        // parameters, and heap_form_tuple reads exactly its N columns.
        unsafe {
            let mut descriptor = std::ptr::null_mut();
            pg_sys::get_call_result_type(
                fcinfo.as_mut_ptr(),
                std::ptr::null_mut(),
                &mut descriptor,
            );
            let descriptor = pg_sys::BlessTupleDesc(descriptor);
            let tuple =
                pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            fcinfo.return_raw_datum(pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data))
        }
    }
}

/// The rows of a set-returning function, handed over all at once (materialize mode).
pub struct Rows<const N: usize>(pub Vec<[Option<pg_sys::Datum>; N]>);

/// The same for a function whose columns only the query names (`AS e (key text, ...)`).
/// A query can name any types; those of other than the rows' own are refused.
pub struct QueryRows<const N: usize> {
    pub types: [pg_sys::Oid; N],
    pub rows: Vec<[Option<pg_sys::Datum>; N]>,
}

// SAFETY: as for Record; the function is declared RETURNS TABLE.
unsafe impl<const N: usize> BoxRet for Rows<N> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: the descriptor comes from the declaration, which has N columns.
        unsafe { materialize(fcinfo.as_mut_ptr(), self.0, 0, None) };
        fcinfo.return_null()
    }
}

// SAFETY: the function is declared RETURNS SETOF record and called by a view that names N columns.
unsafe impl<const N: usize> BoxRet for QueryRows<N> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: materialize refuses a query that names other types.
        unsafe {
            materialize(
                fcinfo.as_mut_ptr(),
                self.rows,
                pg_sys::MAT_SRF_USE_EXPECTED_DESC,
                Some(self.types),
            );
        }
        fcinfo.return_null()
    }
}

/// Puts rows into the tuplestore of a call.
///
/// # Safety
/// `call` is a valid call; the datums fit `types`, or the declared types where there are none.
unsafe fn materialize<const N: usize>(
    call: pg_sys::FunctionCallInfo,
    rows: Vec<[Option<pg_sys::Datum>; N]>,
    options: u32,
    types: Option<[pg_sys::Oid; N]>,
) {
    // SAFETY: InitMaterializedSRF sets setResult and setDesc in resultinfo, or raises an error when
    // the caller cannot take a set. tuplestore_putvalues reads as many columns as setDesc has.
    unsafe {
        pg_sys::InitMaterializedSRF(call, options);
        let result: *mut pg_sys::ReturnSetInfo = (*call).resultinfo.cast();
        let descriptor = (*result).setDesc;
        let column_type = |column: usize| pg_sys::SPI_gettypeid(descriptor, column as i32 + 1);
        let fits = |types: &[pg_sys::Oid; N]| (0..N).all(|i| column_type(i) == types[i]);
        if (*descriptor).natts as usize != N || !types.as_ref().is_none_or(fits) {
            ErrorReport::from(Error::WrongColumns).report(PgLogLevel::ERROR);
        }
        for row in rows {
            let (mut values, mut nulls) = columns(row);
            pg_sys::tuplestore_putvalues(
                (*result).setResult,
                descriptor,
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
        }
    }
}

/// Splits a row into what heap_form_tuple and tuplestore_putvalues take.
fn columns<const N: usize>(row: [Option<pg_sys::Datum>; N]) -> ([pg_sys::Datum; N], [bool; N]) {
    (
        row.map(|column| column.unwrap_or(pg_sys::Datum::null())),
        row.map(|column| column.is_none()),
    )
}
