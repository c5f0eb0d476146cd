//! Kept plans: SQL statements that a session plans once and runs many times through SPI.
//!
//! Guards two rules. A plan for a look-up by key must use the index whatever the statistics say: a
//! cache that was empty a minute ago would otherwise be read from end to end. And a value leaves
//! SPI only as a detoasted copy in the caller's memory context, so that no lock is needed later.

use std::ffi::{CStr, CString};
use std::ptr::NonNull;

use pgrx::pg_sys;

use crate::pg::hooks::meant::Meant;
use crate::pg::memory::{self, list};
use crate::pg::session::clock::Timestamp;
use crate::pg::session::{self, lock};
use crate::pg::value::datum::{Text, Value, ValueType};
use crate::pg::value::stored::{Stored, refuse};
use crate::pg::value::typed::Typed;

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
pub struct Plan {
    plan: NonNull<pg_sys::_SPI_plan>,
    /// What its parameters are.
    types: Box<[pg_sys::Oid]>,
    /// Its text, and the table that this names.
    about: Option<(CString, pg_sys::Oid)>,
}

impl Plan {
    /// The same for a statement over one table, however its name is understood later: see [`crate::pg::hooks::meant`].
    pub fn over(table: pg_sys::Oid, sql: CString, types: &[pg_sys::Oid], paths: Paths) -> Plan {
        let mut plan = {
            let _meant = Meant::by(&sql, table);
            Plan::prepare(&sql, types, paths)
        };
        plan.about = Some((sql, table));
        plan
    }

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
            let plan = Plan {
                plan: NonNull::new(plan).unwrap_or_else(|| failed("SPI_prepare_cursor")),
                types: types.into_boxed_slice(),
                about: None,
            };
            pg_sys::SPI_keepplan(plan.plan.as_ptr());
            if paths == Paths::Costed {
                return plan;
            }
            let planned = pg_sys::SPI_plan_get_cached_plan(plan.plan.as_ptr());
            if !planned.is_null() {
                pg_sys::ReleaseCachedPlan(planned, pg_sys::CurrentResourceOwner);
            }
            plan
        }
    }

    /// Runs the statement and lets `read` look at its rows.
    ///
    /// Each run has a snapshot of its own under READ COMMITTED and sees what the session did before.
    pub fn run<R>(&self, arguments: &[Typed], read: impl FnOnce(&Output) -> R) -> R {
        // SAFETY: in parallel mode no command can begin; there is nothing to see that the session did, so a
        // statement that reads needs none.
        match session::in_parallel_mode() {
            true => self.run_under(unsafe { pg_sys::GetTransactionSnapshot() }, arguments, read),
            false => self.run_under(std::ptr::null_mut(), arguments, read),
        }
    }

    /// The same on rows as they are now, also where the transaction has one snapshot for all its statements.
    pub fn run_on_present<R>(&self, arguments: &[Typed], read: impl FnOnce(&Output) -> R) -> R {
        if !lock::one_snapshot_per_transaction() || session::in_parallel_mode() {
            return self.run(arguments, read);
        }
        // SAFETY: a transaction is open; SPI copies the snapshot.
        self.run_under(unsafe { pg_sys::GetLatestSnapshot() }, arguments, read)
    }

    /// NULL is the snapshot of a statement that begins now.
    fn run_under<R>(
        &self,
        snapshot: pg_sys::Snapshot,
        arguments: &[Typed],
        read: impl FnOnce(&Output) -> R,
    ) -> R {
        let caller = current_context();
        let _connection = Connection::open();
        let (mut values, nulls) = parameters(arguments, &self.types);
        let only_reads = session::in_parallel_mode();
        let about = self.about.as_ref();
        let _meant = about.map(|(sql, table)| Meant::by(sql, *table));
        // SAFETY: the plan is kept and takes parameters of these types; both arrays live through it.
        let code = unsafe {
            pg_sys::SPI_execute_snapshot(
                self.plan.as_ptr(),
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

    /// Runs a statement that changes rows as they are now, whatever the transaction's snapshot shows.
    pub fn run_on_latest(&self, arguments: &[Typed]) {
        // SAFETY: a transaction is open; SPI copies the snapshot.
        self.run_under(unsafe { pg_sys::GetLatestSnapshot() }, arguments, |_| ());
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the plan was made by SPI_prepare_cursor and is referenced from here only.
        unsafe { pg_sys::SPI_freeplan(self.plan.as_ptr()) };
    }
}

/// Runs a statement once, for definitions (DDL) and the like. It holds names that others have chosen: a text that
/// is more than one statement is none of ours.
pub fn run_once(sql: &CStr) {
    let _connection = Connection::open();
    // SAFETY: the parser's list lives in SPI's memory and is only counted; errors are raised.
    let statements = unsafe {
        let mode = pg_sys::RawParseMode::RAW_PARSE_DEFAULT;
        list::pointers::<pg_sys::RawStmt>(pg_sys::raw_parser(sql.as_ptr(), mode)).len()
    };
    if statements != 1 {
        refuse();
    }
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
    arguments: &[Typed],
    read: impl FnOnce(&Output) -> R,
) -> R {
    let caller = current_context();
    let _connection = Connection::open();
    let mut types = types.to_vec();
    let (mut values, nulls) = parameters(arguments, &types);
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
    pub(in crate::pg) fn of_last_statement(caller: pg_sys::MemoryContext) -> Output {
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

    /// How many columns a row has.
    pub fn columns(&self) -> usize {
        match self.table.is_null() {
            true => 0,
            // SAFETY: the descriptor lives as long as the table.
            false => unsafe { (*(*self.table).tupdesc).natts as usize },
        }
    }

    /// A column as it is. From 0.
    fn raw(&self, row: usize, column: usize) -> Option<pg_sys::Datum> {
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

    /// A row's address, copied into the caller's memory context.
    pub fn row_address(&self, row: usize, column: usize) -> Option<Typed> {
        let datum = self.of_type(row, column, pg_sys::TIDOID)?;
        // SAFETY: it has the type; the copy is made where it stays.
        unsafe {
            let size = size_of::<pg_sys::ItemPointerData>();
            let copy = pg_sys::MemoryContextAlloc(self.caller, size);
            std::ptr::copy_nonoverlapping(datum.cast_mut_ptr::<u8>(), copy.cast(), size);
            Some(Typed::copied_address(pg_sys::Datum::from(copy)))
        }
    }

    /// A transaction's id.
    pub fn xid(&self, row: usize, column: usize) -> Option<u32> {
        let datum = self.of_type(row, column, pg_sys::XIDOID)?;
        Some(datum.value() as u32)
    }

    /// The type of a column, from 0.
    pub fn type_of(&self, column: usize) -> pg_sys::Oid {
        // SAFETY: a statement that returns rows has a descriptor, also where there are none.
        unsafe { pg_sys::SPI_gettypeid((*self.table).tupdesc, column as i32 + 1) }
    }

    /// A column of any type in its text form, in the caller's memory context.
    pub fn printed(&self, row: usize, column: usize) -> Option<Text> {
        self.raw(row, column)?;
        // SAFETY: the row and the column are there and not null; the text is copied.
        unsafe {
            let tuple = *(*self.table).vals.add(row);
            let text = pg_sys::SPI_getvalue(tuple, (*self.table).tupdesc, column as i32 + 1);
            let spi = pg_sys::MemoryContextSwitchTo(self.caller);
            let copy = pg_sys::cstring_to_text(text);
            pg_sys::MemoryContextSwitchTo(spi);
            Some(Text::from_raw(pg_sys::Datum::from(copy)))
        }
    }

    /// A column of this type. A kept statement is planned anew when its table has changed, and may then give
    /// another: that ends it.
    fn of_type(&self, row: usize, column: usize, wanted: pg_sys::Oid) -> Option<pg_sys::Datum> {
        let datum = self.raw(row, column)?;
        if self.type_of(column) != wanted {
            refuse();
        }
        Some(datum)
    }

    /// A bigint.
    pub fn number(&self, row: usize, column: usize) -> Option<i64> {
        let datum = self.of_type(row, column, pg_sys::INT8OID)?;
        Some(datum.value() as i64)
    }

    /// A timestamptz.
    pub fn moment(&self, row: usize, column: usize) -> Option<Timestamp> {
        let datum = self.of_type(row, column, pg_sys::TIMESTAMPTZOID)?;
        Some(datum.value() as Timestamp)
    }

    /// An oid.
    pub fn oid(&self, row: usize, column: usize) -> Option<pg_sys::Oid> {
        let datum = self.raw(row, column)?;
        match self.type_of(column) {
            pg_sys::OIDOID | pg_sys::REGCLASSOID => {
                Some(pg_sys::Oid::from_u32(datum.value() as u32))
            }
            _ => refuse(),
        }
    }

    /// A text, copied into the caller's memory context.
    pub fn text(&self, row: usize, column: usize) -> Option<Text> {
        let datum = self.of_type(row, column, pg_sys::TEXTOID)?;
        // SAFETY: it has the type.
        Some(unsafe { Text::from_raw(self.copy(datum)) })
    }

    /// A value of whichever of our types the column has now, copied into the caller's memory context.
    pub fn stored(&self, row: usize, column: usize) -> Option<Stored> {
        let datum = self.raw(row, column)?;
        let Some(value_type) = ValueType::from_oid(self.type_of(column)) else {
            refuse();
        };
        // SAFETY: it has the type.
        Some(unsafe { Stored::new(self.copy(datum), value_type) })
    }

    /// A varlena, copied into the caller's memory context and detoasted.
    ///
    /// # Safety
    /// The datum is one.
    unsafe fn copy(&self, datum: pg_sys::Datum) -> pg_sys::Datum {
        // SAFETY: as the caller says. The copy is made in the memory context
        // that was current before SPI_connect, and the former one is put back.
        unsafe {
            let spi = pg_sys::MemoryContextSwitchTo(self.caller);
            let copy = pg_sys::pg_detoast_datum_copy(datum.cast_mut_ptr());
            pg_sys::MemoryContextSwitchTo(spi);
            pg_sys::Datum::from(copy)
        }
    }
}

/// SPI is connected as long as this lives.
pub(in crate::pg) struct Connection;

impl Connection {
    pub(in crate::pg) fn open() -> Connection {
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

/// SPI's form of parameters: values, and 'n' for each that is NULL. What is no longer of the type that the
/// statement was prepared for ends it.
fn parameters(arguments: &[Typed], types: &[pg_sys::Oid]) -> (Vec<pg_sys::Datum>, Vec<i8>) {
    if arguments.len() != types.len() {
        refuse();
    }
    let (mut values, mut nulls) = (memory::list(types.len()), memory::list(types.len()));
    for (argument, &place) in arguments.iter().zip(types) {
        let Some(datum) = argument.fit(place) else {
            refuse();
        };
        values.push(datum.unwrap_or(pg_sys::Datum::null()));
        nulls.push(if datum.is_none() { b'n' } else { b' ' } as i8);
    }
    (values, nulls)
}

pub(in crate::pg) fn current_context() -> pg_sys::MemoryContext {
    // SAFETY: set in every backend.
    unsafe { pg_sys::CurrentMemoryContext }
}

/// SPI reports misuse by codes; each would be a mistake of ours.
pub(in crate::pg) fn failed(call: &str) -> ! {
    pgrx::error!("{call} failed")
}
