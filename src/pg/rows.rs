//! The rows of a set-returning function, handed over one by one.
//!
//! Guards one rule: a result may be larger than memory. Rows go into a tuplestore, which moves to
//! disk what exceeds work_mem, and what a row was made of is freed before the next one is made.

use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, pg_sys};

use crate::error::Error;

/// A row's columns.
pub type Row<const N: usize> = [Option<pg_sys::Datum>; N];

/// What makes the rows, one after the other.
type Produce<const N: usize> = Box<dyn FnOnce(&mut Sink<N>) -> Result<(), Error>>;

/// A result whose rows are made while they are handed over.
pub struct Stream<const N: usize> {
    options: u32,
    produce: Produce<N>,
}

impl<const N: usize> Stream<N> {
    /// For a function that declares its columns. Locks are taken by `produce`: the tuplestore is there
    /// by then, and its file belongs to the call, not to a scope of locks that ends before it is read.
    pub fn new(produce: impl FnOnce(&mut Sink<N>) -> Result<(), Error> + 'static) -> Stream<N> {
        Stream {
            options: 0,
            produce: Box::new(produce),
        }
    }
}

/// The same for a function whose columns only the query names (`AS e (key text, ...)`). A query can name
/// any types, so `produce` says by [`Sink::require`] what its rows have.
pub struct QueryStream<const N: usize>(Stream<N>);

impl<const N: usize> QueryStream<N> {
    pub fn new(
        produce: impl FnOnce(&mut Sink<N>) -> Result<(), Error> + 'static,
    ) -> QueryStream<N> {
        QueryStream(Stream {
            options: pg_sys::MAT_SRF_USE_EXPECTED_DESC,
            produce: Box::new(produce),
        })
    }
}

// SAFETY: as for Stream, whose work it is.
unsafe impl<const N: usize> BoxRet for QueryStream<N> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: as the caller promises.
        unsafe { self.0.box_into(fcinfo) }
    }
}

// SAFETY: the function is declared RETURNS TABLE with N columns, or SETOF record: then `produce` compares
// the types that the query names with those of the rows.
unsafe impl<const N: usize> BoxRet for Stream<N> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: Postgres passes a valid call.
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
    /// What a row is made in; emptied after each.
    scratch: pg_sys::MemoryContext,
}

impl<const N: usize> Sink<N> {
    /// # Safety
    /// `call` is a valid call; the rows' datums fit the declared types, or those given to `require`.
    pub unsafe fn open(call: pg_sys::FunctionCallInfo, options: u32) -> Sink<N> {
        // SAFETY: InitMaterializedSRF sets setResult and setDesc in resultinfo, or raises an error when
        // the caller cannot take a set. The scratch context goes with the one the call runs in.
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

    /// Refuses a query that names other types.
    pub fn require(&self, types: [pg_sys::Oid; N]) -> Result<(), Error> {
        // SAFETY: the descriptor has N columns.
        let named = |i: usize| unsafe { pg_sys::SPI_gettypeid(self.descriptor, i as i32 + 1) };
        match (0..N).all(|i| named(i) == types[i]) {
            true => Ok(()),
            false => Err(Error::WrongColumns),
        }
    }

    /// Hands over what `make` makes, if anything; the memory that it took is freed.
    pub fn row(&mut self, make: impl FnOnce() -> Option<Row<N>>) {
        // SAFETY: the scratch context lives until `close`, and nothing in it is used after the reset.
        // tuplestore_putvalues copies as many columns as the descriptor has, which are N.
        unsafe {
            let caller = pg_sys::MemoryContextSwitchTo(self.scratch);
            if let Some(row) = make() {
                let mut values = row.map(|column| column.unwrap_or(pg_sys::Datum::null()));
                let mut nulls = row.map(|column| column.is_none());
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

    pub fn close(self) {
        // SAFETY: made in `open`; nothing in it is used any more.
        unsafe { pg_sys::MemoryContextDelete(self.scratch) };
    }
}
