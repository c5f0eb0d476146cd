//! Saved plans: SQL statements that a session plans once and runs many times through SPI.
//!
//! A plan for a lookup by key always uses the index, whatever the statistics say. Otherwise Postgres would read a cache
//! with sequential scans while its statistics say that it is empty.

use std::ffi::{CStr, CString};
use std::ptr::NonNull;

use pgrx::pg_sys;

use super::output::Output;
use super::spi_connection::{Connection, current_context, failed};
use crate::pg::hooks::name_guard::{self, NameGuard, ParameterTypes};
use crate::pg::memory::{self, pg_list};
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::{self, failure, lock};
use crate::pg::value::stored::refuse;
use crate::pg::value::typed::Typed;

/// The access paths that the planner may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Paths {
    /// Only by the primary key.
    Index,
    /// Any path, planned without the parameters.
    Any,
    /// Any path, planned with the values of the parameters.
    Costed,
    /// Only by the addresses of the rows (tid scan).
    Address,
}

/// A planned statement, kept until this value is dropped. Every function that runs the plan raises the statement's
/// errors.
pub struct Plan {
    plan: NonNull<pg_sys::_SPI_plan>,
    /// The types of its parameters.
    types: Box<[pg_sys::Oid]>,
    /// The text, and the only table that it names, for the name guard of each run.
    about: Option<About>,
}

struct About {
    sql: CString,
    table: pg_sys::Oid,
    _types: ParameterTypes,
}

impl Plan {
    /// Parses and plans a statement on one table. Raises an error, now and at each run, if the table's name in the text
    /// refers to another table. The lookup of the name succeeds for every role that runs the statement, as
    /// [`name_guard`] explains.
    pub fn over(table: pg_sys::Oid, sql: CString, types: &[pg_sys::Oid], paths: Paths) -> Plan {
        let _guard = NameGuard::of_query(&sql, table);
        let _connection = Connection::open();
        let _settings = Allowed::only(paths);
        name_guard::begin_look_up();
        let mut plan = Plan::parse(&sql, types, paths);
        name_guard::end_look_up();
        let types = ParameterTypes::of(&plan.types);
        // SAFETY: the plan was just made with these types; it owns both after this.
        unsafe { types.look_up_again(plan.plan.as_ptr()) };
        plan.make(paths);
        drop(_guard);
        plan.about = Some(About {
            sql,
            table,
            _types: types,
        });
        plan
    }

    /// Parses and plans `sql`, with parameters of these types.
    pub fn prepare(sql: &CStr, types: &[pg_sys::Oid], paths: Paths) -> Plan {
        let _connection = Connection::open();
        let _settings = Allowed::only(paths);
        let plan = Plan::parse(sql, types, paths);
        plan.make(paths);
        plan
    }

    /// Parses a statement. The caller has connected SPI.
    fn parse(sql: &CStr, types: &[pg_sys::Oid], paths: Paths) -> Plan {
        let mut types = types.to_vec();
        // SAFETY: sql and types live through the call. SPI_prepare_cursor raises an error instead of returning NULL
        // for invalid SQL; SPI_keepplan moves the plan out of SPI's memory.
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
            let plan = NonNull::new(plan).unwrap_or_else(|| failed("SPI_prepare_cursor"));
            pg_sys::SPI_keepplan(plan.as_ptr());
            Plan {
                plan,
                types: types.into_boxed_slice(),
                about: None,
            }
        }
    }

    /// Plans the statement under the current settings. Does nothing for a plan that depends on its arguments, because
    /// Postgres makes such a plan at each run.
    fn make(&self, paths: Paths) {
        if paths == Paths::Costed {
            return;
        }
        // SAFETY: the plan is kept; the reference belongs to the current resource owner and is released at once.
        unsafe {
            let planned = pg_sys::SPI_plan_get_cached_plan(self.plan.as_ptr());
            if !planned.is_null() {
                pg_sys::ReleaseCachedPlan(planned, pg_sys::CurrentResourceOwner);
            }
        }
    }

    /// Runs the statement, and returns the result of `read` for its rows.
    ///
    /// Under READ COMMITTED each run takes a new snapshot. The statement sees the session's earlier changes.
    pub fn run<R>(&self, arguments: &[Typed], read: impl FnOnce(&Output) -> R) -> R {
        // In parallel mode no command can begin. A statement that reads needs no new command, because in parallel mode
        // the session has no earlier changes to see.
        let snapshot = match session::in_parallel_mode() {
            // SAFETY: in parallel mode a transaction is open, and has its first snapshot.
            true => unsafe { pg_sys::GetTransactionSnapshot() },
            false => std::ptr::null_mut(),
        };
        self.run_under(snapshot, arguments, read)
    }

    /// Runs the statement as [`Plan::run`] does, but on the rows in their current state, even if the transaction's
    /// statements share one snapshot.
    pub fn run_as_of_now<R>(&self, arguments: &[Typed], read: impl FnOnce(&Output) -> R) -> R {
        if !lock::one_snapshot_per_transaction() || session::in_parallel_mode() {
            return self.run(arguments, read);
        }
        // SAFETY: a transaction is open; SPI copies the snapshot.
        self.run_under(unsafe { pg_sys::GetLatestSnapshot() }, arguments, read)
    }

    /// Runs the statement under this snapshot; NULL means the snapshot of a statement that begins now.
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
        let _guard = about.map(|about| NameGuard::of_query(&about.sql, about.table));
        let (plan, values, nulls) = (self.plan.as_ptr(), values.as_mut_ptr(), nulls.as_ptr());
        let _interpreted = Interpreted::begin();
        let execute = || {
            // SAFETY: the plan is kept and takes parameters of these types; both arrays live through the call.
            unsafe {
                pg_sys::SPI_execute_snapshot(
                    plan,
                    values,
                    nulls,
                    snapshot,
                    std::ptr::null_mut(),
                    only_reads,
                    true,
                    0,
                )
            }
        };
        let code = failure::replacing(execute, failure::without_values);
        if code < 0 {
            failed("SPI_execute_snapshot");
        }
        read(&Output::of_last_statement(caller))
    }

    /// Runs a statement that changes rows, as [`Plan::run_as_of_now`] does, and ignores its result.
    pub fn change_as_of_now(&self, arguments: &[Typed]) {
        // SAFETY: a transaction is open; SPI copies the snapshot.
        self.run_under(unsafe { pg_sys::GetLatestSnapshot() }, arguments, |_| ());
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the plan was made by SPI_prepare_cursor and only this value refers to it.
        unsafe { pg_sys::SPI_freeplan(self.plan.as_ptr()) };
    }
}

/// Runs a statement once, mostly DDL. Raises an error if the text parses as more than one statement, because it
/// contains names that users have chosen.
pub fn run_once(sql: &CStr) {
    let _connection = Connection::open();
    // SAFETY: the parser's list is in SPI's memory, and the code only counts its elements; errors are raised.
    let statements = unsafe {
        let mode = pg_sys::RawParseMode::RAW_PARSE_DEFAULT;
        pg_list::pointers::<pg_sys::RawStmt>(pg_sys::raw_parser(sql.as_ptr(), mode)).len()
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
    let _interpreted = Interpreted::begin();
    // SAFETY: all arrays have the same length and live through the call.
    let code = unsafe {
        pg_sys::SPI_execute_with_args(
            sql.as_ptr(),
            types.len() as i32,
            types.as_mut_ptr(),
            values.as_mut_ptr(),
            nulls.as_ptr(),
            session::in_parallel_mode(), // in parallel mode no command can begin
            0,
        )
    };
    if code < 0 {
        failed("SPI_execute_with_args");
    }
    read(&Output::of_last_statement(caller))
}

/// Restricts the planner to one kind of path while this value lives.
///
/// Sets the variables behind enable_seqscan and similar settings directly, because SET would call assign hooks and take
/// part in the transaction. Dropping this value restores the former values before any other code reads them.
struct Allowed {
    seqscan: bool,
    indexscan: bool,
    bitmapscan: bool,
    tidscan: bool,
}

impl Allowed {
    /// Sets the restriction; returns None if the planner may choose any path.
    fn only(paths: Paths) -> Option<Allowed> {
        if !matches!(paths, Paths::Index | Paths::Address) {
            return None;
        }
        // SAFETY: plain variables of this process, which the planner reads; no other code runs while they are changed.
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
            Some(former)
        }
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        // SAFETY: the four plain variables of this process that `only` has set.
        unsafe {
            pg_sys::enable_seqscan = self.seqscan;
            pg_sys::enable_indexscan = self.indexscan;
            pg_sys::enable_bitmapscan = self.bitmapscan;
            pg_sys::enable_tidscan = self.tidscan;
        }
    }
}

/// Disables JIT compilation while this value lives. Without it, a path whose type is disabled would cost 1e10, more
/// than `jit_above_cost`, so Postgres would compile for 100 ms to read a page of keys in 3 ms.
struct Interpreted(bool);

impl Interpreted {
    fn begin() -> Interpreted {
        // SAFETY: a plain variable of this process, which the planner and the executor read.
        unsafe {
            let former = pg_sys::jit_enabled;
            pg_sys::jit_enabled = former && fault::on(Fault::OwnStatementsCompiled);
            Interpreted(former)
        }
    }
}

impl Drop for Interpreted {
    fn drop(&mut self) {
        // SAFETY: as in `begin`.
        unsafe { pg_sys::jit_enabled = self.0 };
    }
}

/// Returns the parameters in SPI's form: values, and 'n' for each NULL. Raises an error if an argument's type differs
/// from its parameter's.
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
