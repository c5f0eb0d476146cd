//! Guards that a name in a statement of ours still stands for the table that it was made from.
//!
//! A statement can only name its table. Between two lines of ours a schema's owner may rename that table and
//! give its name to another one, whose triggers, policies and views would then run with the rights of a
//! cache's owner. No lock on the table prevents that. So we ask Postgres which table it found under the name:
//! of a query whenever its text has been analysed, also when a kept plan is made anew, and before any other
//! code is shown the result; of a TRUNCATE each time that its table has been looked up.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;

use pgrx::pg_sys::{self, Oid};

use crate::pg::memory::pg_list;
use crate::pg::value::stored::refuse;

#[derive(Clone, Copy)]
enum Guarded {
    /// The statement with this text may read and write this table alone.
    Query(*const c_char, Oid),
    /// A TRUNCATE at this depth of triggers may empty this table alone; one that a trigger runs is deeper.
    Truncate(i32, Oid),
}

thread_local! {
    static GUARDED: Cell<Option<Guarded>> = const { Cell::new(None) };
}

/// While this lives, a statement that finds another table under its name ends with an error. Statements that
/// run inside of it, from triggers or functions, are not concerned.
pub struct NameGuard<'s> {
    former: Option<Guarded>,
    text: PhantomData<&'s CStr>,
}

impl<'s> NameGuard<'s> {
    /// Guards the query with this text.
    pub fn of_query(sql: &'s CStr, table: Oid) -> NameGuard<'s> {
        NameGuard::enter(Guarded::Query(sql.as_ptr(), table))
    }

    /// Guards a TRUNCATE that is about to run.
    pub fn of_truncate(table: Oid) -> NameGuard<'static> {
        NameGuard::enter(Guarded::Truncate(trigger_depth(), table))
    }

    fn enter<'any>(guarded: Guarded) -> NameGuard<'any> {
        NameGuard {
            former: GUARDED.replace(Some(guarded)),
            text: PhantomData,
        }
    }
}

impl Drop for NameGuard<'_> {
    fn drop(&mut self) {
        GUARDED.set(self.former);
    }
}

/// How many triggers deep the session is; 0 in none.
fn trigger_depth() -> i32 {
    // SAFETY: the function takes no argument, reads a variable of this process and gives an int.
    let depth = unsafe { pgrx::direct_function_call_as_datum(pg_sys::pg_trigger_depth, &[]) };
    depth.map_or(0, |depth| depth.value() as i32)
}

/// A TRUNCATE has looked its table up, and this is it.
pub fn truncated(table: Oid) {
    if let Some(Guarded::Truncate(depth, expected)) = GUARDED.get()
        && expected != table
        && depth == trigger_depth()
    {
        refuse();
    }
}

static mut FORMER: pg_sys::post_parse_analyze_hook_type = None;

/// Hooks into the analysis of statements; called once while the library is loaded.
pub fn register() {
    // SAFETY: no other thread exists that could read the variable meanwhile, and our function lives as long as
    // the process.
    unsafe {
        FORMER = pg_sys::post_parse_analyze_hook;
        pg_sys::post_parse_analyze_hook = Some(analysed);
    }
}

/// Postgres calls this for every statement: those that are not ours return without pgrx's guard.
unsafe extern "C-unwind" fn analysed(
    state: *mut pg_sys::ParseState,
    query: *mut pg_sys::Query,
    jumble: *mut pg_sys::JumbleState,
) {
    // SAFETY: the arguments are Postgres' own, and are passed on to the former hook unchanged. The guarded text
    // lives at least as long as its guard, and with the guard goes what GUARDED holds.
    unsafe {
        if let Some(Guarded::Query(sql, table)) = GUARDED.get()
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
    // SAFETY: p_sourcetext is NULL, which is looked for, or a C string, as `sql` is by the caller's word.
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
    // SAFETY: Postgres walks the query, which the caller has from it; the lists that it fills are allocated in the
    // current memory context and read before anything else runs.
    let relations = unsafe {
        pg_sys::extract_query_dependencies(
            query.cast(),
            &mut relations,
            &mut others,
            &mut policies,
        );
        pg_list::oids(relations)
    };
    if relations.iter().any(|&relation| relation != table) {
        refuse();
    }
}
