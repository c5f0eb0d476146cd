//! The results of functions that return rows: a set that is built row by row, so that it may be larger than memory, a
//! set that is returned at once, and a single row.
//!
//! The rows of a set go into a tuplestore, which moves to disk when it exceeds work_mem. The memory of each row is
//! freed before the next row is built.

use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, pg_sys};

use super::datum::Text;
use super::typed::{self, Typed};
use crate::error::Error;

/// A row's columns.
pub type Row<const N: usize> = [Typed; N];

/// A function that makes the rows, one after the other.
type Produce<const N: usize> = Box<dyn FnOnce(&mut Sink<N>) -> Result<(), Error>>;

/// The result of a set-returning function, whose rows are built one after the other.
pub struct Stream<const N: usize> {
    options: u32,
    produce: Produce<N>,
}

impl<const N: usize> Stream<N> {
    /// Makes a stream for a function that declares its columns. The tuplestore is created before `produce` runs and
    /// takes locks. So the tuplestore's file belongs to the call, and not to the resource owner of the locks, which
    /// ends before Postgres reads the file.
    pub fn new(produce: impl FnOnce(&mut Sink<N>) -> Result<(), Error> + 'static) -> Stream<N> {
        Stream {
            options: 0,
            produce: Box::new(produce),
        }
    }
}

impl Stream<1> {
    /// Makes a stream for a function that in SQL returns a set of scalar values. Only the query determines their type.
    pub fn of_scalars(
        produce: impl FnOnce(&mut Sink<1>) -> Result<(), Error> + 'static,
    ) -> Stream<1> {
        Stream {
            options: pg_sys::MAT_SRF_USE_EXPECTED_DESC,
            produce: Box::new(produce),
        }
    }
}

/// A [`Stream`] for a function whose columns only the query names (`AS e (key text, ...)`). A query can name any types,
/// so `produce` passes the types of its rows to [`Sink::require`].
pub struct QueryStream<const N: usize>(Stream<N>);

impl<const N: usize> QueryStream<N> {
    /// Makes a stream of the rows of `produce`.
    pub fn new(
        produce: impl FnOnce(&mut Sink<N>) -> Result<(), Error> + 'static,
    ) -> QueryStream<N> {
        QueryStream(Stream {
            options: pg_sys::MAT_SRF_USE_EXPECTED_DESC,
            produce: Box::new(produce),
        })
    }
}

// SAFETY: it returns the result of its Stream, which compares its columns with the columns that the query names.
unsafe impl<const N: usize> BoxRet for QueryStream<N> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: Postgres' call goes to the stream unchanged.
        unsafe { self.0.box_into(fcinfo) }
    }
}

// SAFETY: the sink compares each row with the columns that the function declares, or that the query names.
unsafe impl<const N: usize> BoxRet for Stream<N> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: `fcinfo` is the call that Postgres is making right now, and its function is declared to return a set.
        let mut sink = unsafe { Sink::open(fcinfo.as_mut_ptr(), self.options) };
        if let Err(error) = (self.produce)(&mut sink) {
            ErrorReport::from(error).report(PgLogLevel::ERROR);
        }
        sink.close();
        fcinfo.return_null()
    }
}

/// The tuplestore of a call.
pub struct Sink<const N: usize> {
    store: *mut pg_sys::Tuplestorestate,
    descriptor: pg_sys::TupleDesc,
    /// The types of the columns, from the query or the declaration.
    types: [pg_sys::Oid; N],
    /// The memory for building a row, emptied after each row.
    scratch: pg_sys::MemoryContext,
}

impl<const N: usize> Sink<N> {
    /// # Safety
    /// `call` is a valid call.
    pub unsafe fn open(call: pg_sys::FunctionCallInfo, options: u32) -> Sink<N> {
        // SAFETY: InitMaterializedSRF sets setResult and setDesc in resultinfo, or raises an error if the caller cannot
        // accept a set. The scratch context ends with the context in which the call runs.
        unsafe {
            pg_sys::InitMaterializedSRF(call, options);
            let result: *mut pg_sys::ReturnSetInfo = (*call).resultinfo.cast();
            let descriptor = (*result).setDesc;
            if (*descriptor).natts as usize != N {
                ErrorReport::from(Error::WrongColumns).report(PgLogLevel::ERROR);
            }
            Sink {
                store: (*result).setResult,
                descriptor,
                types: typed::types_of(descriptor),
                scratch: pg_sys::AllocSetContextCreateInternal(
                    pg_sys::CurrentMemoryContext,
                    c"pgcache row".as_ptr(),
                    pg_sys::ALLOCSET_SMALL_MINSIZE as usize,
                    pg_sys::ALLOCSET_SMALL_INITSIZE as usize,
                    pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
                ),
            }
        }
    }

    /// Returns an error if the query names other types, even for an empty result.
    pub fn require(&self, types: [pg_sys::Oid; N]) -> Result<(), Error> {
        match self.types == types {
            true => Ok(()),
            false => Err(Error::WrongColumns),
        }
    }

    /// Adds the row that `make` returns, if any, to the result, and frees the row's memory. Raises 42804 if the type of
    /// a column differs from the type that the query names.
    pub fn row(&mut self, make: impl FnOnce() -> Option<Row<N>>) {
        // SAFETY: the scratch context lives until `close`, and nothing in it is used after the
        // reset. tuplestore_putvalues copies as many columns as the descriptor has, which are N.
        unsafe {
            let caller = pg_sys::MemoryContextSwitchTo(self.scratch);
            if let Some(row) = make() {
                let (mut values, mut nulls) = typed::datums(row, &self.types);
                pg_sys::tuplestore_putvalues(
                    self.store,
                    self.descriptor,
                    values.as_mut_ptr(),
                    nulls.as_mut_ptr(),
                );
            }
            pg_sys::MemoryContextSwitchTo(caller);
            pg_sys::MemoryContextReset(self.scratch);
        }
    }

    /// Frees the memory for building rows. The tuplestore now belongs to the caller.
    pub fn close(self) {
        // SAFETY: `open` made the context; the code uses nothing in it afterwards.
        unsafe { pg_sys::MemoryContextDelete(self.scratch) };
    }
}

/// One row of several columns, for a function with OUT parameters.
pub struct OutRow<const N: usize>(pub [Typed; N]);

// SAFETY: `box_into` compares the columns with the columns of the SQL declaration.
unsafe impl<const N: usize> BoxRet for OutRow<N> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: get_call_result_type returns a tuple descriptor for any function with OUT parameters, and
        // heap_form_tuple reads exactly the descriptor's N columns.
        unsafe {
            let mut descriptor = std::ptr::null_mut();
            pg_sys::get_call_result_type(
                fcinfo.as_mut_ptr(),
                std::ptr::null_mut(),
                &mut descriptor,
            );
            if descriptor.is_null() || (*descriptor).natts as usize != N {
                typed::refuse_columns();
            }
            let (mut values, mut nulls) = typed::datums(self.0, &typed::types_of(descriptor));
            let descriptor = pg_sys::BlessTupleDesc(descriptor);
            let tuple =
                pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            fcinfo.return_raw_datum(pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data))
        }
    }
}

/// The result of a function that returns an array of texts; None means NULL.
pub struct Texts(pub Option<Vec<Text>>);

// SAFETY: the SQL declaration returns an array of texts; a test compares it with this type.
unsafe impl BoxRet for Texts {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        match self.0.map(|texts| Typed::texts(texts.into_iter())) {
            Some(array) => match array.fit(pg_sys::TEXTARRAYOID).flatten() {
                // SAFETY: the datum has that type.
                Some(datum) => unsafe { fcinfo.return_raw_datum(datum) },
                None => fcinfo.return_null(),
            },
            None => fcinfo.return_null(),
        }
    }
}

/// The rows of a set-returning function, returned all at once (materialize mode).
pub struct Rows<const N: usize>(pub Vec<[Typed; N]>);

// SAFETY: the sink compares each row with the columns that the function declares.
unsafe impl<const N: usize> BoxRet for Rows<N> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: `fcinfo` is the call that Postgres is making right now, and its function is declared to return a set.
        let mut sink = unsafe { Sink::open(fcinfo.as_mut_ptr(), 0) };
        for row in self.0 {
            sink.row(|| Some(row));
        }
        sink.close();
        fcinfo.return_null()
    }
}
