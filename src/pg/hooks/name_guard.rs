//! Checks that a name in one of pgcache's statements still refers to the intended table. Also makes the lookup of the
//! name succeed without USAGE on its schema.
//!
//! A statement can refer to its table only by name. While pgcache runs, a schema's owner may rename the table and give
//! its name to another table. The triggers, policies and views of that table would run with the rights of a cache's
//! owner. No lock on the table prevents this. So after each parse analysis of pgcache's text, including each later
//! analysis for a saved plan, this module checks which table Postgres found under the name, before any other code sees
//! the result.
//!
//! A schema's owner may also revoke USAGE on the schema from a cache's owner. The name comes from pgcache and not from
//! a user, so the whole analysis runs as a superuser. The analysis reads catalogs and runs no user-defined code.
//! Privileges on the table are checked later, when the statement runs.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;

use pgrx::pg_sys::{self, Oid};

use crate::pg::memory::pg_list;
use crate::pg::value::stored::refuse;
use crate::pg::version;

/// The text of a statement, and the only table that it may read or write.
#[derive(Clone, Copy)]
struct Guarded {
    text: *const c_char,
    table: Oid,
}

/// The user and the security context of the session before a superuser lookup.
#[derive(Clone, Copy)]
struct Identity {
    user: Oid,
    context: i32,
}

thread_local! {
    static GUARDED: Cell<Option<Guarded>> = const { Cell::new(None) };
    /// The identity to restore; set during a lookup.
    static FORMER_IDENTITY: Cell<Option<Identity>> = const { Cell::new(None) };
}

/// While this value lives, makes the guarded statement raise an error if it finds another table under its name. Does
/// not affect statements that triggers or functions run inside the guarded statement.
pub struct NameGuard<'s> {
    former: Option<Guarded>,
    text: PhantomData<&'s CStr>,
}

impl<'s> NameGuard<'s> {
    /// Guards the query with this text.
    pub fn of_query(sql: &'s CStr, table: Oid) -> NameGuard<'s> {
        let text = sql.as_ptr();
        NameGuard {
            former: GUARDED.replace(Some(Guarded { text, table })),
            text: PhantomData,
        }
    }
}

impl Drop for NameGuard<'_> {
    fn drop(&mut self) {
        GUARDED.set(self.former);
        // If the analysis failed, the abort restores the identity.
        FORMER_IDENTITY.set(None);
    }
}

/// Begins the analysis of the guarded query, whose lookups of names run as a superuser.
pub fn begin_look_up() {
    let mut former = Identity {
        user: pg_sys::InvalidOid,
        context: 0,
    };
    // SAFETY: `end_look_up` restores the former identity at the end of the analysis, before any other code runs;
    // after an error the abort does it.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut former.user, &mut former.context);
        pg_sys::SetUserIdAndSecContext(
            Oid::from_u32(pg_sys::BOOTSTRAP_SUPERUSERID),
            former.context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32,
        );
    }
    FORMER_IDENTITY.set(Some(former));
}

/// Ends the lookup as a superuser.
pub fn end_look_up() {
    if let Some(Identity { user, context }) = FORMER_IDENTITY.take() {
        // SAFETY: the identity that was current in `begin_look_up`.
        unsafe { pg_sys::SetUserIdAndSecContext(user, context) };
    }
}

/// The types of a saved plan's parameters. Their address is stable, because Postgres keeps a pointer to them.
pub struct ParameterTypes(Box<(*const Oid, i32)>);

impl ParameterTypes {
    /// Borrows the types, which must live as long as the plan.
    pub fn of(types: &[Oid]) -> ParameterTypes {
        ParameterTypes(Box::new((types.as_ptr(), types.len() as i32)))
    }

    /// Makes every later analysis of the plan's text look up names as a superuser, as the first analysis did.
    ///
    /// # Safety
    /// `plan` was made by SPI_prepare_cursor with these types, is kept, and is freed before `self`.
    pub unsafe fn look_up_again(&self, plan: pg_sys::SPIPlanPtr) {
        // SAFETY: a saved plan has its sources. Postgres calls their setup function, if one is set, instead of using
        // the types alone.
        unsafe {
            let sources: Vec<*mut pg_sys::CachedPlanSource> =
                pg_list::pointers(pg_sys::SPI_plan_get_plan_sources(plan));
            for source in sources {
                (*source).parserSetup = Some(analysis_begins);
                (*source).parserSetupArg = (&raw const *self.0).cast_mut().cast();
            }
        }
    }
}

unsafe extern "C-unwind" {
    // Missing from pgrx's bindings; declared identically in all versions of Postgres (parser/parse_param.h).
    fn setup_parse_fixed_parameters(state: *mut pg_sys::ParseState, types: *const Oid, number: i32);
}

/// Sets up the parameters' types, and begins a guarded lookup. Postgres calls this before it analyses a saved plan's
/// text again.
unsafe extern "C-unwind" fn analysis_begins(state: *mut pg_sys::ParseState, types: *mut c_void) {
    // SAFETY: `types` is the argument that `look_up_again` set, which lives as long as the plan. The call of
    // `setup_parse_fixed_parameters` is the call that Postgres itself would make; this frame holds nothing to drop.
    unsafe {
        let (types, number) = *types.cast::<(*const Oid, i32)>();
        setup_parse_fixed_parameters(state, types, number);
        if GUARDED
            .get()
            .is_some_and(|guarded| is_of(state, guarded.text))
        {
            pg_sys::panic::pgrx_extern_c_guard(begin_look_up);
        }
    }
}

static mut FORMER: pg_sys::post_parse_analyze_hook_type = None;

/// Installs the hook into the analysis of statements; called once while the library is loaded.
pub fn register() {
    // SAFETY: no other thread exists that could read the variable, and the function `analysed` lives as long as the
    // process.
    unsafe {
        FORMER = pg_sys::post_parse_analyze_hook;
        pg_sys::post_parse_analyze_hook = Some(analysed);
    }
}

/// Ends the lookup of a guarded statement and checks its tables. Postgres calls this for every statement, so statements
/// that are not pgcache's return before pgrx's guard.
unsafe extern "C-unwind" fn analysed(
    state: *mut pg_sys::ParseState,
    query: *mut pg_sys::Query,
    jumble: version::Jumble,
) {
    // SAFETY: the arguments are Postgres' own, and are passed to the former hook unchanged. The guarded text lives at
    // least as long as its guard, and the end of the guard clears GUARDED.
    unsafe {
        if let Some(Guarded { text, table }) = GUARDED.get()
            && is_of(state, text)
        {
            pg_sys::panic::pgrx_extern_c_guard(|| {
                end_look_up();
                require_only(query, table);
            });
        }
        if let Some(former) = FORMER {
            former(state, query, jumble);
        }
    }
}

/// # Safety
/// The state is one of the parser, and the text a C string.
unsafe fn is_of(state: *const pg_sys::ParseState, sql: *const c_char) -> bool {
    // SAFETY: p_sourcetext is NULL, which is checked, or a C string; `sql` is one by the caller's contract.
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
    // SAFETY: Postgres walks the query, which it passed to the caller; the lists that it fills are allocated in the
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
