//! Runs the loader of `cache_fetch`: a query that a user passes as text, which returns one value.
//!
//! The loader runs as the caller and under the caller's search_path, like any statement of the caller. The CONTEXT of
//! each of its errors shows the loader's text.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::NonNull;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::output::Output;
use super::spi_connection::{Connection, current_context, failed};
use crate::error::Error;
use crate::pg::session::failure::Failure;
use crate::pg::value::datum::{Text, Value, ValueType};
use crate::pg::value::stored::Stored;

unsafe extern "C-unwind" {
    fn errcontext_msg(format: *const c_char, ...) -> c_int;
}

/// A planned loader, kept until this value is dropped. Postgres plans it again when an object that it names has
/// changed.
pub struct Loader(NonNull<pg_sys::_SPI_plan>);

/// The result of a loader. NULL counts as a value.
pub enum Loaded {
    NoRow,
    Value(Option<Stored>),
}

impl Loader {
    /// Parses the text, in which `$1` is the key. Returns an error if the text is not a single query with one column.
    pub fn prepare(text: Text) -> Result<Loader, Error> {
        let _connection = Connection::open();
        let sql = CString::new(text.bytes()).unwrap_or_default();
        let mut types = [pg_sys::TEXTOID];
        let _context = LoaderContext::enter(text.bytes());
        // SAFETY: sql and types live through the call, which raises an error for invalid SQL. A plan that is not kept
        // ends with the connection.
        unsafe {
            let plan = pg_sys::SPI_prepare(sql.as_ptr(), 1, types.as_mut_ptr());
            let Some(plan) = NonNull::new(plan) else {
                failed("SPI_prepare");
            };
            if !pg_sys::SPI_is_cursor_plan(plan.as_ptr()) {
                return Err(Error::LoaderNoQuery(text.to_string_lossy()));
            }
            let sources = pg_sys::SPI_plan_get_plan_sources(plan.as_ptr());
            let source: *mut pg_sys::CachedPlanSource = (*(*sources).elements).ptr_value.cast();
            if (*(*source).resultDesc).natts != 1 {
                return Err(Error::LoaderColumns(text.to_string_lossy()));
            }
            pg_sys::SPI_keepplan(plan.as_ptr());
            Ok(Loader(plan))
        }
    }

    /// Runs the query for a key. Returns an error that shows `text` if the query returns several rows.
    pub fn run(&self, key: Text, text: Text) -> Result<Loaded, Error> {
        let caller = current_context();
        let _connection = Connection::open();
        let mut values = [key.raw()];
        let _context = LoaderContext::enter(text.bytes());
        // SAFETY: the plan is kept and takes one text. Two rows suffice to detect that there are several.
        let code = unsafe {
            pg_sys::SPI_execute_plan(
                self.0.as_ptr(),
                values.as_mut_ptr(),
                c" ".as_ptr(),
                false,
                2,
            )
        };
        if code < 0 {
            failed("SPI_execute_plan");
        }
        let output = Output::of_last_statement(caller);
        // Postgres may have planned the query again, with other columns.
        if output.columns() != 1 {
            return Err(Error::LoaderColumns(text.to_string_lossy()));
        }
        match output.rows() {
            0 => Ok(Loaded::NoRow),
            1 => Ok(Loaded::Value(value(&output))),
            _ => Err(Error::LoaderRows(text.to_string_lossy())),
        }
    }
}

/// Raises a loader's error again, with the loader's text in the CONTEXT.
pub fn raise_from(text: Text, failure: Failure) -> ! {
    let _context = LoaderContext::enter(text.bytes());
    failure.raise()
}

impl Drop for Loader {
    fn drop(&mut self) {
        // SAFETY: the plan was kept, and only this value refers to it.
        unsafe { pg_sys::SPI_freeplan(self.0.as_ptr()) };
    }
}

/// Returns the only column of the only row: a text, jsonb or bytea unchanged, a value of any other type as text. None
/// means NULL.
fn value(output: &Output) -> Option<Stored> {
    match ValueType::from_oid(output.type_of(0)) {
        Some(_) => output.stored(0, 0),
        None => output.printed(0, 0).map(Stored::of),
    }
}

/// Adds the text of a loader to the CONTEXT of its errors while it lives.
///
/// For an error of Postgres the callback runs when Postgres reports it. An error of pgcache is a panic, which pgrx
/// reports only at the function's entry. So the callback stays in Postgres' list while an error unwinds; the code that
/// catches the error restores the list.
struct LoaderContext {
    former: *mut pg_sys::ErrorContextCallback,
}

impl LoaderContext {
    /// Makes errors show this text until the result is dropped.
    fn enter(loader: &[u8]) -> LoaderContext {
        let text = CString::new(loader).unwrap_or_default();
        // SAFETY: text and entry are palloc'd in the call's memory context, which lives until the statement ends or
        // its error has been raised. Drop removes the entry.
        unsafe {
            let former = pg_sys::error_context_stack;
            let entry: *mut pg_sys::ErrorContextCallback =
                pg_sys::palloc(size_of::<pg_sys::ErrorContextCallback>()).cast();
            *entry = pg_sys::ErrorContextCallback {
                previous: former,
                callback: Some(name_loader),
                arg: pg_sys::pstrdup(text.as_ptr()).cast(),
            };
            pg_sys::error_context_stack = entry;
            LoaderContext { former }
        }
    }
}

impl Drop for LoaderContext {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: this restores the value from before `enter`; contexts end in reverse order of their beginning.
            unsafe { pg_sys::error_context_stack = self.former };
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn name_loader(text: *mut c_void) {
    // SAFETY: Postgres calls this while it builds an error report; the text is a C string.
    unsafe { errcontext_msg(c"loader \"%s\"".as_ptr(), text.cast::<c_char>()) };
}
