//! Which table a statement of ours is about, which can only name it.
//!
//! Guards that it is that table: between two lines a schema's owner may rename it and give its name to another,
//! whose table of the same name would then run its triggers, policies and views with the rights of a cache's owner.
//! No lock on the table prevents that. So Postgres is asked what it took the name for: of a query whenever it has
//! analysed its text, also when a kept plan is made anew, and before any other code comes to see what came of that; of a TRUNCATE
//! each time that it has looked the name up.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;

use pgrx::pg_sys::{self, Oid};

use crate::pg::memory::list;
use crate::pg::value::stored::refuse;

#[derive(Clone, Copy)]
enum Now {
    /// This text.
    Query(*const c_char, Oid),
    /// A TRUNCATE in as many triggers; one of theirs is about something else.
    Truncate(i32, Oid),
}

thread_local! {
    static NOW: Cell<Option<Now>> = const { Cell::new(None) };
}

/// As long as this lives a text is about one table alone. What runs inside of the statement is not concerned.
pub struct Meant<'s> {
    former: Option<Now>,
    text: PhantomData<&'s CStr>,
}

impl<'s> Meant<'s> {
    pub fn by(sql: &'s CStr, table: Oid) -> Meant<'s> {
        Meant::now(Now::Query(sql.as_ptr(), table))
    }

    pub fn by_truncate(table: Oid) -> Meant<'static> {
        Meant::now(Now::Truncate(triggers(), table))
    }

    fn now<'any>(now: Now) -> Meant<'any> {
        Meant {
            former: NOW.replace(Some(now)),
            text: PhantomData,
        }
    }
}

impl Drop for Meant<'_> {
    fn drop(&mut self) {
        NOW.set(self.former);
    }
}

/// How many triggers the session is in.
fn triggers() -> i32 {
    // SAFETY: takes nothing, gives an int.
    let depth = unsafe { pgrx::direct_function_call_as_datum(pg_sys::pg_trigger_depth, &[]) };
    depth.map_or(0, |depth| depth.value() as i32)
}

/// A TRUNCATE has looked this table up.
pub fn truncated(table: Oid) {
    if let Some(Now::Truncate(depth, meant)) = NOW.get()
        && meant != table
        && depth == triggers()
    {
        refuse();
    }
}

static mut FORMER: pg_sys::post_parse_analyze_hook_type = None;

/// Called once while the library is loaded.
pub fn register() {
    // SAFETY: hooks are variables of this process; ours lives as long as it.
    unsafe {
        FORMER = pg_sys::post_parse_analyze_hook;
        pg_sys::post_parse_analyze_hook = Some(analysed);
    }
}

/// Postgres calls this for every statement, so what concerns nobody ends without a guard.
unsafe extern "C-unwind" fn analysed(
    state: *mut pg_sys::ParseState,
    query: *mut pg_sys::Query,
    jumble: *mut pg_sys::JumbleState,
) {
    // SAFETY: Postgres' own arguments; the former hook is called as Postgres would have called it. The text that is
    // meant lives as long as it is.
    unsafe {
        if let Some(Now::Query(sql, table)) = NOW.get()
            && is_of(state, sql)
        {
            pg_sys::panic::pgrx_extern_c_guard(|| require_only(query, table));
        }
        if let Some(former) = FORMER {
            former(state, query, jumble);
        }
    }
}

/// # Safety
/// The state is one of the parser, and the text a C string.
unsafe fn is_of(state: *const pg_sys::ParseState, sql: *const c_char) -> bool {
    // SAFETY: as the caller says; a text that the parser has none of is NULL.
    unsafe {
        let text = (*state).p_sourcetext;
        !text.is_null() && CStr::from_ptr(text) == CStr::from_ptr(sql)
    }
}

/// # Safety
/// The query was analysed and not rewritten.
unsafe fn require_only(query: *mut pg_sys::Query, table: Oid) {
    let (mut relations, mut others, mut policies) =
        (std::ptr::null_mut(), std::ptr::null_mut(), false);
    // SAFETY: as the caller says; Postgres walks it, and makes lists in the current memory context.
    let relations = unsafe {
        pg_sys::extract_query_dependencies(
            query.cast(),
            &mut relations,
            &mut others,
            &mut policies,
        );
        list::oids(relations)
    };
    if relations.iter().any(|&relation| relation != table) {
        refuse();
    }
}
