//! Kept plans: SQL statements that a session plans once and runs many times through SPI.
//!
//! Guards two rules. A plan for a look-up by key must use the index whatever the statistics say: a
//! cache that was empty a minute ago would otherwise be read from end to end. And a value leaves
//! SPI only as a detoasted copy in the caller's memory context, so that no lock is needed later.

use std::ffi::CStr;
use std::ptr::NonNull;

use pgrx::pg_sys;

use super::session;

/// Which access paths the planner may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Paths {
    /// By the primary key only.
    Index,
    /// Whatever the planner likes, not knowing the parameters.
    Any,
    /// Whatever it likes, knowing them.
    Costed,
    /// By the rows' addresses only.
    Address,
}

/// A planned statement, kept until dropped.
pub struct Plan(NonNull<pg_sys::_SPI_plan>);

impl Plan {
    /// Parses and plans `sql` with the parameters' types.
    pub fn prepare(sql: &CStr, types: &[pg_sys::Oid], paths: Paths) -> Plan {
        let _connection = Connection::open();
        let _settings =
            matches!(paths, Paths::Index | Paths::Address).then(|| Allowed::only(paths));
        let mut types = types.to_vec();
        // SAFETY: sql and types live through the call. SPI_prepare_cursor raises an error instead
        // of returning NULL for SQL that fails; SPI_keepplan moves the plan out of SPI's memory.
        // SPI_plan_get_cached_plan plans it now, under the settings above; the reference it takes
        // belongs to the current resource owner and is given back at once.
        unsafe {
            let plan = pg_sys::SPI_prepare_cursor(
                sql.as_ptr(),
                types.len() as i32,
                types.as_mut_ptr(),
                match paths {
                    Paths::Costed => pg_sys::CURSOR_OPT_CUSTOM_PLAN as i32,
                    _ => pg_sys::CURSOR_OPT_GENERIC_PLAN as i32,
                },
            );
            let plan = Plan(NonNull::new(plan).unwrap_or_else(|| failed("SPI_prepare_cursor")));
            pg_sys::SPI_keepplan(plan.0.as_ptr());
            if paths == Paths::Costed {
                return plan;
            }
            let planned = pg_sys::SPI_plan_get_cached_plan(plan.0.as_ptr());
            if !planned.is_null() {
                pg_sys::ReleaseCachedPlan(planned, pg_sys::CurrentResourceOwner);
            }
            plan
        }
    }

    /// Runs the statement and lets `read` look at its rows.
    ///
    /// Each run has a snapshot of its own under READ COMMITTED and sees what the session did before.
    pub fn run<R>(
        &self,
        arguments: &[Option<pg_sys::Datum>],
        read: impl FnOnce(&Output) -> R,
    ) -> R {
        let caller = current_context();
        let _connection = Connection::open();
        let (mut values, nulls) = parameters(arguments);
        // SAFETY: the plan is kept and takes this many parameters; both arrays live through it. In parallel
        // mode no command can begin; there is nothing to see that the session did, so a statement that reads
        // needs none.
        let code = unsafe {
            let (snapshot, only_reads) = match session::in_parallel_mode() {
                true => (pg_sys::GetTransactionSnapshot(), true),
                false => (std::ptr::null_mut(), false),
            };
            pg_sys::SPI_execute_snapshot(
                self.0.as_ptr(),
                values.as_mut_ptr(),
                nulls.as_ptr(),
                snapshot,
                std::ptr::null_mut(),
                only_reads,
                true,
                0,
            )
        };
        if code < 0 {
            failed("SPI_execute_snapshot");
        }
        read(&Output::of_last_statement(caller))
    }

    /// Runs the statement on rows as they are now, whatever the transaction's snapshot shows.
    pub fn run_on_latest(&self, arguments: &[Option<pg_sys::Datum>]) {
        let _connection = Connection::open();
        let (mut values, nulls) = parameters(arguments);
        // SAFETY: as in run; SPI copies the snapshot.
        let code = unsafe {
            pg_sys::SPI_execute_snapshot(
                self.0.as_ptr(),
                values.as_mut_ptr(),
                nulls.as_ptr(),
                pg_sys::GetLatestSnapshot(),
                std::ptr::null_mut(),
                false,
                true,
                0,
            )
        };
        if code < 0 {
            failed("SPI_execute_snapshot");
        }
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the plan was made by SPI_prepare_cursor and is referenced from here only.
        unsafe { pg_sys::SPI_freeplan(self.0.as_ptr()) };
    }
}

/// Runs a statement once, for definitions (DDL) and the like.
pub fn run_once(sql: &CStr) {
    let _connection = Connection::open();
    // SAFETY: sql lives through the call; errors are raised.
    let code = unsafe { pg_sys::SPI_execute(sql.as_ptr(), false, 0) };
    if code < 0 {
        failed("SPI_execute");
    }
}

/// Plans and runs a statement once, with parameters.
pub fn query_once<R>(
    sql: &CStr,
    types: &[pg_sys::Oid],
    arguments: &[Option<pg_sys::Datum>],
    read: impl FnOnce(&Output) -> R,
) -> R {
    let caller = current_context();
    let _connection = Connection::open();
    let mut types = types.to_vec();
    let (mut values, nulls) = parameters(arguments);
    // SAFETY: all arrays have the same length and live through the call.
    let code = unsafe {
        pg_sys::SPI_execute_with_args(
            sql.as_ptr(),
            types.len() as i32,
            types.as_mut_ptr(),
            values.as_mut_ptr(),
            nulls.as_ptr(),
            false,
            0,
        )
    };
    if code < 0 {
        failed("SPI_execute_with_args");
    }
    read(&Output::of_last_statement(caller))
}

/// What a statement gave back: rows, when it has any, and how many it touched.
pub struct Output {
    /// Rows returned, inserted, updated or deleted.
    pub processed: u64,
    table: *mut pg_sys::SPITupleTable,
    caller: pg_sys::MemoryContext,
}

impl Output {
    pub(super) fn of_last_statement(caller: pg_sys::MemoryContext) -> Output {
        // SAFETY: SPI sets both after each statement; nothing ran in between.
        unsafe {
            Output {
                processed: pg_sys::SPI_processed,
                table: pg_sys::SPI_tuptable,
                caller,
            }
        }
    }

    /// How many rows can be read.
    pub fn rows(&self) -> usize {
        match self.table.is_null() {
            true => 0,
            false => self.processed as usize,
        }
    }

    /// A column passed by value, or one that is looked at before the statement ends. From 0.
    pub fn raw(&self, row: usize, column: usize) -> Option<pg_sys::Datum> {
        if row >= self.rows() {
            return None;
        }
        let mut null = false;
        // SAFETY: row is below the number of tuples; SPI_getbinval gives NULL for a column that
        // is not there. The datum points into SPI's memory, which lives as long as self.
        let datum = unsafe {
            let tuple = *(*self.table).vals.add(row);
            pg_sys::SPI_getbinval(tuple, (*self.table).tupdesc, column as i32 + 1, &mut null)
        };
        (!null).then_some(datum)
    }

    /// The type of a column, from 0.
    pub fn type_of(&self, column: usize) -> pg_sys::Oid {
        // SAFETY: a statement that returns rows has a descriptor, also where there are none.
        unsafe { pg_sys::SPI_gettypeid((*self.table).tupdesc, column as i32 + 1) }
    }

    /// A column of any type in its text form, in the caller's memory context.
    pub fn printed(&self, row: usize, column: usize) -> Option<pg_sys::Datum> {
        self.raw(row, column)?;
        // SAFETY: the row and the column are there and not null; the text is copied.
        unsafe {
            let tuple = *(*self.table).vals.add(row);
            let text = pg_sys::SPI_getvalue(tuple, (*self.table).tupdesc, column as i32 + 1);
            let spi = pg_sys::MemoryContextSwitchTo(self.caller);
            let copy = pg_sys::cstring_to_text(text);
            pg_sys::MemoryContextSwitchTo(spi);
            Some(pg_sys::Datum::from(copy))
        }
    }

    /// A varlena column, copied into the caller's memory context and detoasted.
    pub fn varlena(&self, row: usize, column: usize) -> Option<pg_sys::Datum> {
        let datum = self.raw(row, column)?;
        // SAFETY: the caller asks for a varlena column. The copy is made in the memory context
        // that was current before SPI_connect, and the former one is put back.
        unsafe {
            let spi = pg_sys::MemoryContextSwitchTo(self.caller);
            let copy = pg_sys::pg_detoast_datum_copy(datum.cast_mut_ptr());
            pg_sys::MemoryContextSwitchTo(spi);
            Some(pg_sys::Datum::from(copy))
        }
    }
}

/// SPI is connected as long as this lives.
pub(super) struct Connection;

impl Connection {
    pub(super) fn open() -> Connection {
        // SAFETY: always possible inside a transaction; it is paired by drop.
        unsafe { pg_sys::SPI_connect() };
        Connection
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // An error that unwinds ends in an abort, which cleans SPI up itself, in the right order.
        if !std::thread::panicking() {
            // SAFETY: this is the innermost connection, since guards are dropped in order.
            unsafe { pg_sys::SPI_finish() };
        }
    }
}

/// The planner's switches allow one kind of path as long as this lives.
///
/// The variables behind enable_seqscan and its like are set directly: SET would fire assign hooks
/// and leave a trace in the transaction, and the former values come back before anyone looks.
struct Allowed {
    seqscan: bool,
    indexscan: bool,
    bitmapscan: bool,
    tidscan: bool,
}

impl Allowed {
    fn only(paths: Paths) -> Allowed {
        // SAFETY: plain C variables of this process.
        unsafe {
            let former = Allowed {
                seqscan: pg_sys::enable_seqscan,
                indexscan: pg_sys::enable_indexscan,
                bitmapscan: pg_sys::enable_bitmapscan,
                tidscan: pg_sys::enable_tidscan,
            };
            pg_sys::enable_seqscan = false;
            pg_sys::enable_tidscan = true;
            pg_sys::enable_indexscan = paths == Paths::Index;
            pg_sys::enable_bitmapscan = former.bitmapscan && paths == Paths::Index;
            former
        }
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        // SAFETY: as in `only`.
        unsafe {
            pg_sys::enable_seqscan = self.seqscan;
            pg_sys::enable_indexscan = self.indexscan;
            pg_sys::enable_bitmapscan = self.bitmapscan;
            pg_sys::enable_tidscan = self.tidscan;
        }
    }
}

/// SPI's form of parameters: values, and 'n' for each that is NULL.
fn parameters(arguments: &[Option<pg_sys::Datum>]) -> (Vec<pg_sys::Datum>, Vec<i8>) {
    let values = arguments
        .iter()
        .map(|argument| argument.unwrap_or(pg_sys::Datum::null()))
        .collect();
    let nulls = arguments
        .iter()
        .map(|argument| if argument.is_none() { b'n' } else { b' ' } as i8)
        .collect();
    (values, nulls)
}

pub(super) fn current_context() -> pg_sys::MemoryContext {
    // SAFETY: set in every backend.
    unsafe { pg_sys::CurrentMemoryContext }
}

/// SPI reports misuse by codes; each would be a mistake of ours.
pub(super) fn failed(call: &str) -> ! {
    pgrx::error!("{call} failed")
}
