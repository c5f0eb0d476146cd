//! Declares the extension's SQL functions in Postgres' calling convention ([`functions`]), and converts the arguments
//! of a call to text. With Citus, another server that has the cache's entries can then answer the call.
//!
//! The text must have the same meaning under the other session's settings, so the text of an interval has a sign for
//! each part.

use std::ffi::CStr;
use std::panic::{RefUnwindSafe, UnwindSafe};

use pgrx::PgMemoryContexts;
use pgrx::callconv::{ArgAbi, Args, CallCx, FcInfo, RetAbi};
use pgrx::datum::Interval;
use pgrx::pg_sys::panic::pgrx_extern_c_guard;
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid};
use pgrx::{FromDatum, IntoDatum};

use super::datum::{self, Bytes, Text, Value, ValueType};
use crate::pg::memory;
use crate::pg::session::shard_lock::Place;
use crate::pg::version;

/// A row of texts; None means NULL.
pub type TextRow = Vec<Option<Text>>;

/// A call that Postgres is making.
#[derive(Clone, Copy)]
pub struct Call(FunctionCallInfo);

/// The maximum number of arguments of a function that another server may answer.
const MOST_ARGUMENTS: usize = 8;

/// A copy of a call, with room for its arguments.
#[repr(C)]
struct Frame {
    head: std::mem::MaybeUninit<pg_sys::FunctionCallInfoBaseData>,
    arguments: [std::mem::MaybeUninit<pg_sys::NullableDatum>; MOST_ARGUMENTS],
}

/// Declares that a function uses calling convention version 1.
pub static V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };

/// A function in Postgres' calling convention.
pub type Function = unsafe extern "C-unwind" fn(FunctionCallInfo) -> Datum;

/// Makes the call with argument `place` replaced by another OID. Uses a copy of the call, because Postgres fills in
/// constant arguments only once, so the original must stay unchanged.
///
/// # Safety
/// `call` is a valid call of this function and has an argument at `place`.
#[inline]
pub unsafe fn call_with(
    call: FunctionCallInfo,
    place: usize,
    oid: Oid,
    function: Function,
) -> Datum {
    // SAFETY: the frame has room for the head and for `MOST_ARGUMENTS` arguments, and the code copies no more arguments
    // than the call has. The head ends where its arguments begin. The frame holds nothing to drop when an error jumps
    // over it.
    unsafe {
        let mut frame = Frame {
            head: std::mem::MaybeUninit::uninit(),
            arguments: [const { std::mem::MaybeUninit::uninit() }; MOST_ARGUMENTS],
        };
        let copy: FunctionCallInfo = frame.head.as_mut_ptr();
        let count = ((*call).nargs as usize).min(MOST_ARGUMENTS);
        let head = std::mem::offset_of!(pg_sys::FunctionCallInfoBaseData, args);
        let size = head + count * size_of::<pg_sys::NullableDatum>();
        std::ptr::copy_nonoverlapping(call.cast::<u8>(), copy.cast::<u8>(), size);
        let argument = copy
            .byte_add(head)
            .cast::<pg_sys::NullableDatum>()
            .add(place);
        (*argument).value = Datum::from(oid);
        (*argument).isnull = false;
        let result = function(copy);
        (*call).isnull = (*copy).isnull;
        result
    }
}

impl Call {
    /// Returns the number of arguments.
    pub fn len(self) -> usize {
        // SAFETY: the call is valid.
        unsafe { (*self.0).nargs as usize }
    }

    /// Returns an argument; None means NULL.
    #[inline]
    pub fn raw(self, place: usize) -> Option<Datum> {
        // SAFETY: the call is valid, and has room for its arguments.
        unsafe {
            let argument = (*self.0).args.as_ptr().add(place);
            (place < (*self.0).nargs as usize && !(*argument).isnull).then(|| (*argument).value)
        }
    }

    /// Returns an argument that is declared as regclass.
    #[inline]
    pub fn oid(self, place: usize) -> Option<Oid> {
        Some(Oid::from_u32(self.raw(place)?.value() as u32))
    }

    /// Returns an argument that is declared as text.
    #[inline]
    pub fn text(self, place: usize) -> Option<Text> {
        // SAFETY: by the function's SQL declaration.
        self.raw(place)
            .map(|datum| unsafe { Text::from_raw(datum) })
    }

    /// Returns an argument that is declared as integer.
    pub fn integer(self, place: usize) -> Option<i32> {
        Some(self.raw(place)?.value() as i32)
    }

    /// Returns an argument that is declared as interval.
    pub fn interval(self, place: usize) -> Option<Interval> {
        // SAFETY: by the function's SQL declaration.
        unsafe { Interval::from_datum(self.raw(place)?, false) }
    }

    /// Returns the elements of an argument that is declared as an array of this type. Returns None if the array is
    /// NULL, contains NULL, or has several dimensions.
    pub fn elements(self, place: usize, of: ValueType) -> Option<Vec<Datum>> {
        // SAFETY: by the function's SQL declaration.
        unsafe { datum::array_elements(self.raw(place)?, of).ok() }
    }

    /// Returns the elements of an argument that is declared as text[]. Returns None if the array is NULL, contains
    /// NULL, or has several dimensions.
    pub fn texts(self, place: usize) -> Option<Vec<Text>> {
        let elements = self.elements(place, ValueType::Text)?;
        // SAFETY: the datums are elements of an array of texts.
        let text = |datum| unsafe { Text::from_raw(datum) };
        Some(memory::collect(elements.into_iter().map(text)))
    }

    /// Returns the declared type of an argument.
    pub fn type_of(self, place: usize) -> Oid {
        // SAFETY: the function is running, so its declaration exists; the list is palloc'd and has `count` types.
        unsafe {
            let (mut types, mut count) = (std::ptr::null_mut(), 0);
            pg_sys::get_func_signature((*(*self.0).flinfo).fn_oid, &mut types, &mut count);
            match place < count as usize {
                true => *types.add(place),
                false => pg_sys::InvalidOid,
            }
        }
    }

    /// Returns an argument as text that every session reads as the same value, whatever its settings.
    pub fn printed(self, place: usize) -> Option<Text> {
        let datum = self.raw(place)?;
        Some(print(datum, self.type_of(place)))
    }

    /// Returns an array argument as text, reduced to these elements, which have this type.
    pub fn printed_part(self, place: usize, of: ValueType, elements: &[Datum]) -> Text {
        let mut elements = memory::collect(elements.iter().copied());
        print(datum::new_array(&mut elements, of), self.type_of(place))
    }

    /// Returns the function's result, made from rows of texts: a single value, the columns of a single row, or the rows
    /// of a set.
    pub fn give(self, rows: &[TextRow]) -> Datum {
        // SAFETY: the call is valid. The descriptor is Postgres' own description of the result, which builds the
        // tuples.
        unsafe {
            if (*(*self.0).flinfo).fn_retset {
                return self.give_set(rows);
            }
            let mut descriptor = std::ptr::null_mut();
            let mut kind = pg_sys::InvalidOid;
            let class = pg_sys::get_call_result_type(self.0, &mut kind, &mut descriptor);
            let row = rows.first();
            if class == pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE {
                let Some(row) = row else {
                    return self.null();
                };
                let tuple = tuple(pg_sys::BlessTupleDesc(descriptor), row);
                return pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data);
            }
            let value = row.and_then(|row| row.first().copied().flatten());
            if kind == pg_sys::VOIDOID {
                return Datum::null();
            }
            match value {
                None => self.null(),
                Some(text) => {
                    let (mut input, mut parameter) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
                    pg_sys::getTypeInputInfo(kind, &mut input, &mut parameter);
                    pg_sys::OidInputFunctionCall(input, c_string(text), parameter, -1)
                }
            }
        }
    }

    /// # Safety
    /// The called function returns a set.
    unsafe fn give_set(self, rows: &[TextRow]) -> Datum {
        // SAFETY: InitMaterializedSRF sets setResult and setDesc, or raises an error if the caller accepts no set.
        unsafe {
            let mut descriptor = std::ptr::null_mut();
            let mut kind = pg_sys::InvalidOid;
            let class = pg_sys::get_call_result_type(self.0, &mut kind, &mut descriptor);
            let options = match class {
                pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE => 0,
                _ => pg_sys::MAT_SRF_USE_EXPECTED_DESC,
            };
            pg_sys::InitMaterializedSRF(self.0, options);
            let result: *mut pg_sys::ReturnSetInfo = (*self.0).resultinfo.cast();
            for row in rows {
                let tuple = tuple((*result).setDesc, row);
                pg_sys::tuplestore_puttuple((*result).setResult, tuple);
                pg_sys::pfree(tuple.cast());
            }
            self.null()
        }
    }

    /// Returns the number of columns of the function's result.
    pub fn columns(self) -> usize {
        // SAFETY: the call is valid; the descriptor is Postgres'.
        unsafe {
            let mut descriptor = std::ptr::null_mut();
            pg_sys::get_call_result_type(self.0, std::ptr::null_mut(), &mut descriptor);
            match descriptor.is_null() {
                true => 1,
                false => (*descriptor).natts as usize,
            }
        }
    }

    /// Returns NULL as the function's result; for a set, the end of the set.
    pub fn null(self) -> Datum {
        // SAFETY: the call is valid.
        unsafe { (*self.0).isnull = true };
        Datum::null()
    }
}

/// Makes a tuple of these texts.
///
/// # Safety
/// `descriptor` is valid.
unsafe fn tuple(descriptor: pg_sys::TupleDesc, row: &TextRow) -> pg_sys::HeapTuple {
    // SAFETY: the code passes as many strings as the descriptor has columns; a null pointer means NULL.
    unsafe {
        let columns = (*descriptor).natts as usize;
        let value = |at| row.get(at).copied().flatten();
        let mut values = memory::collect(
            (0..columns).map(|at| value(at).map_or(std::ptr::null_mut(), c_string)),
        );
        let meta = pg_sys::TupleDescGetAttInMetadata(descriptor);
        pg_sys::BuildTupleFromCStrings(meta, values.as_mut_ptr())
    }
}

fn c_string(text: Text) -> *mut std::ffi::c_char {
    super::datum::new_c_string(text.bytes()).cast_mut_ptr()
}

/// Returns an interval as text that every session reads as the same interval, whatever its settings.
pub fn print_interval(interval: Interval) -> Option<Text> {
    Some(print(interval.into_datum()?, pg_sys::INTERVALOID))
}

/// Returns bytes in the output format of bytea.
pub fn print_bytes(bytes: Bytes) -> Text {
    print(bytes.raw(), pg_sys::BYTEAOID)
}

fn print(datum: Datum, kind: Oid) -> Text {
    // SAFETY: the datum has this type, by the SQL declaration of the function of which it is an argument.
    unsafe {
        if kind == pg_sys::INTERVALOID {
            let interval: *const pg_sys::Interval = datum.cast_mut_ptr();
            return Text::new(spelled(&*interval).as_bytes());
        }
        let (mut output, mut varlena) = (pg_sys::InvalidOid, false);
        pg_sys::getTypeOutputInfo(kind, &mut output, &mut varlena);
        let printed = pg_sys::OidOutputFunctionCall(output, datum);
        Text::new(CStr::from_ptr(printed).to_bytes())
    }
}

fn spelled(interval: &pg_sys::Interval) -> String {
    let (months, days, micros) = (interval.month, interval.day, interval.time);
    match (months, days, micros) {
        // An interval is infinite if all its parts have the maximum value, or all have the minimum value.
        (i32::MAX, i32::MAX, i64::MAX) if version::HAS_ENDLESS_INTERVALS => "infinity".into(),
        (i32::MIN, i32::MIN, i64::MIN) if version::HAS_ENDLESS_INTERVALS => "-infinity".into(),
        _ => format!("{months:+} months {days:+} days {micros:+} microseconds"),
    }
}

/// How a call is answered.
#[derive(Clone, Copy)]
pub enum Way {
    /// By this server, with the arguments unchanged.
    Here,
    /// By this server, on a different relation from the one that the caller named. `kept` is a shard whose lock `leave`
    /// releases after the call.
    On {
        relation: Oid,
        place: usize,
        kept: Option<Place>,
    },
    /// The call is already answered, with this result.
    Answered(Datum),
}

/// Chooses how a call is answered.
pub type Choose<R> = fn(Call, &'static R) -> Way;

/// Answers a call as `choose` decides. If no table can be distributed, this costs one read of a variable.
///
/// # Safety
/// `call` is a valid call of `here`.
#[inline]
pub unsafe fn enter<R>(
    call: FunctionCallInfo,
    here: Function,
    is_loaded: impl FnOnce() -> bool,
    choose: Choose<R>,
    route: &'static R,
    leave: fn(Place),
) -> Datum {
    // SAFETY: by the caller's contract; this frame holds nothing to drop when an error of `here` jumps over it.
    unsafe {
        if !is_loaded() {
            return here(call);
        }
        match pgrx_extern_c_guard(move || choose(Call(call), route)) {
            Way::Here => here(call),
            Way::Answered(datum) => datum,
            Way::On {
                relation,
                place,
                kept,
            } => {
                let result = call_with(call, place, relation, here);
                if let Some(shard) = kept {
                    pgrx_extern_c_guard(move || leave(shard));
                }
                result
            }
        }
    }
}

/// Makes a call of a Rust function: `run` unboxes its arguments, and this function boxes the result, as pgrx does for a
/// `#[pg_extern]`.
///
/// # Safety
/// `call` is valid. `run` takes the arguments of the SQL declaration, in their order, and returns the declared result.
#[inline]
pub unsafe fn answer<R: for<'fcx> RetAbi>(
    call: FunctionCallInfo,
    run: impl for<'a, 'fcx> FnOnce(&mut Args<'a, 'fcx>) -> R + UnwindSafe + RefUnwindSafe,
) -> Datum {
    // SAFETY: by the caller's contract. The code boxes the result of `run` in the memory context that the result type
    // requires.
    unsafe {
        pgrx_extern_c_guard(move || {
            let mut call = FcInfo::from_ptr(call);
            let result = match R::check_and_prepare(&mut call) {
                CallCx::WrappedFn(context) => {
                    let mut context = PgMemoryContexts::For(context);
                    let arguments = &mut call.args();
                    R::to_ret(context.switch_to(|_| run(arguments)))
                }
                CallCx::RestoreCx => R::ret_from_fcx(&mut call),
            };
            R::box_ret_in(&mut call, result).sans_lifetime()
        })
    }
}

/// Returns the next argument of a call. Panics if the call has fewer arguments, which is possible only if the SQL
/// declaration is not pgcache's.
///
/// # Safety
/// The SQL declaration has an argument of this type at this position.
#[inline]
#[expect(clippy::panic, reason = "becomes an internal error, as in pgrx")]
pub unsafe fn next<'fcx, T: ArgAbi<'fcx>>(arguments: &mut Args<'_, 'fcx>) -> T {
    // SAFETY: by the caller's contract.
    match unsafe { arguments.next_arg_unchecked() } {
        Some(argument) => argument,
        None => panic!("the function was declared with fewer arguments than it takes"),
    }
}

/// Declares SQL functions on the entries of a cache. The macro's first arguments are the paths of three functions and a
/// type, which find the server that answers a call ([`enter`]); the declarations follow:
///
/// ```text
/// is_loaded, choose, leave, Route;
/// [1, READ, TO_READ]
/// fn cache_get<Text>, cache_get_json<Json>, cache_get_bytes<Bytes>:
///     fn(key: Option<Text>, cache: Option<Oid>) -> Answer<Option<V>> { ... }
/// ```
///
/// The example declares three functions with one body. In the body, `V` is the type beside the function's name, and
/// `NAME` the name for messages. The brackets hold the position of the cache among the arguments, counted from 0; how a
/// call finds the Citus nodes with its entries; and the privileges that the caller needs on the cache. Postgres calls
/// each function by the symbol `NAME_wrapper`. If Citus is not loaded, the choice of the server costs one read of a
/// variable.
macro_rules! functions {
    ($is_loaded:path, $choose:path, $leave:path, $route:path;
     $($(#[$doc:meta])* [$cache:literal, $kind:expr, $needs:expr]
       fn $($name:ident $(<$value:ident>)?),+: fn $arguments:tt -> $result:ty $body:block)*) => {
        /// How calls of these functions find their Citus nodes.
        pub const ROUTES: &[&$route] = &[$($(&$name::ROUTE),+),*];
        $($($crate::pg::value::call::function! {
            $is_loaded, $choose, $leave, $route; [$cache, $kind, $needs]
            $name $($value)? $arguments $result, $body
        })+)*
    };
}
pub(crate) use functions;

/// Declares one of [`functions`].
macro_rules! function {
    ($is_loaded:path, $choose:path, $leave:path, $route:path;
     [$cache:literal, $kind:expr, $needs:expr] $name:ident $($value:ident)?
     ($($argument:ident: $type:ty),* $(,)?) $result:ty, $body:block) => {
        mod $name {
            #[allow(unused_imports)] // each body uses some of them
            use super::*;

            $(type V = $value;)?

            /// The function's name for an error message.
            #[allow(dead_code)] // reads need none
            const NAME: &std::ffi::CStr = {
                let name = concat!(stringify!($name), "()\0").as_bytes();
                match std::ffi::CStr::from_bytes_with_nul(name) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            };

            use $route as Route;

            pub static ROUTE: Route = Route {
                function: stringify!($name),
                cache: $cache,
                kind: $kind,
                needs: $needs,
            };

            fn body($($argument: $type),*) -> $result $body

            #[unsafe(export_name = concat!("pg_finfo_", stringify!($name), "_wrapper"))]
            #[allow(unsafe_code)] // the calling convention, as pgrx writes it for other functions
            extern "C-unwind" fn info() -> &'static pgrx::pg_sys::Pg_finfo_record {
                &$crate::pg::value::call::V1
            }

            #[unsafe(export_name = concat!(stringify!($name), "_wrapper"))]
            #[allow(unsafe_code)] // as above
            unsafe extern "C-unwind" fn by_any_way(
                call: pgrx::pg_sys::FunctionCallInfo,
            ) -> pgrx::pg_sys::Datum {
                // SAFETY: Postgres makes this call, by the declaration of the function.
                unsafe {
                    $crate::pg::value::call::enter(
                        call, here, $is_loaded, $choose, &ROUTE, $leave,
                    )
                }
            }

            #[allow(unsafe_code)] // as above
            unsafe extern "C-unwind" fn here(
                call: pgrx::pg_sys::FunctionCallInfo,
            ) -> pgrx::pg_sys::Datum {
                // SAFETY: Postgres makes this call, by the declaration of the function; a test compares the declaration
                // with the types above.
                unsafe {
                    $crate::pg::value::call::answer(call, |_arguments| {
                        $(let $argument: $type = $crate::pg::value::call::next(_arguments);)*
                        body($($argument),*)
                    })
                }
            }
        }
    };
}
pub(crate) use function;
