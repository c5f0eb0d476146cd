//! Whether a statement sees expired rows: decided when the executor begins it, as Postgres' own check of
//! its privileges is.
//!
//! A cursor may be read later, under other settings and by another role: one that a SECURITY DEFINER
//! function has opened is read by the function's caller. So the decision is left with the statement. A
//! statement that sees all rows has a mark among the callbacks of its memory context, which goes when the
//! context goes, whatever ends the statement. All other statements have none, and pay for none.
//!
//! The mark is found from an expression by the memory in which the expression is evaluated: that lies below
//! the memory of its statement.

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::guc::GucSetting;
use pgrx::pg_sys::{self, MemoryContext};

use crate::pg::memory::unguarded;
use crate::pg::version;

/// `pgcache.show_expired`. Off: what has expired is gone.
pub static SHOW_EXPIRED: GucSetting<bool> = GucSetting::<bool>::new(false);

/// Whether the setting counts for a statement that begins now: for the session's own. A SECURITY DEFINER
/// function that checks whether a session of its application still exists must not depend on its caller's
/// setting.
pub fn shows_expired() -> bool {
    // SAFETY: reads variables of this process.
    SHOW_EXPIRED.get() && !unsafe { pg_sys::InLocalUserIdChange() }
}

unsafe extern "C-unwind" {
    // Reads a variable of the process and raises nothing.
    fn InNoForceRLSOperation() -> bool;
}

/// The name of the memory context of a statement, and of the one in which Postgres evaluates a row of it
/// again after a wait.
const STATEMENT: &CStr = c"ExecutorState";

/// Its address tells our callback from others.
static MARK: u8 = 0;

thread_local! {
    /// Whether this process has ever marked a statement.
    static MARKED: Cell<bool> = const { Cell::new(false) };
}

/// Hooks into the executor.
pub fn register() {
    // SAFETY: called once while the library is loaded; neither function has anything to drop.
    unsafe { version::on_statements(begun, may_be_parallel) };
}

/// Whether a statement that begins now sees expired rows: where the session wants to, and for the queries of
/// referential integrity. A parent row that goes must take its expired children with it, or the dump could
/// not be restored. Postgres marks these queries by the one flag that it sets for them alone.
fn would_see_all() -> bool {
    // SAFETY: as declared above.
    shows_expired() || unsafe { InNoForceRLSOperation() }
}

/// # Safety
/// The statement has begun. In a frame that holds nothing to drop.
unsafe fn begun(query: *mut pg_sys::QueryDesc) {
    if !would_see_all() {
        return;
    }
    // SAFETY: as the caller says: the statement has its state, unless the hook of another library has begun it in
    // a way of its own. The callback lies in the memory whose end it waits for, as Postgres advises.
    unsafe {
        let state = (*query).estate;
        if !state.is_null() {
            let size = size_of::<pg_sys::MemoryContextCallback>();
            let context = (*state).es_query_cxt;
            let callback: *mut pg_sys::MemoryContextCallback =
                unguarded::MemoryContextAllocZero(context, size).cast();
            (*callback).func = Some(nothing);
            (*callback).arg = (&raw const MARK).cast_mut().cast();
            unguarded::MemoryContextRegisterResetCallback(context, callback);
            MARKED.set(true);
        }
    }
}

/// The mark is the callback's presence; there is nothing to do at its end.
unsafe extern "C-unwind" fn nothing(_: *mut std::ffi::c_void) {}

/// Whether a statement may use parallel workers: they begin it anew, and decide by the present settings.
///
/// # Safety
/// The statement has begun.
unsafe fn may_be_parallel(query: *mut pg_sys::QueryDesc) -> bool {
    // SAFETY: as the caller says.
    unsafe {
        let (plan, state) = ((*query).plannedstmt, (*query).estate);
        let is_asked = !plan.is_null() && (*plan).parallelModeNeeded && !state.is_null();
        !is_asked || is_marked((*state).es_query_cxt) == would_see_all()
    }
}

/// Whether the statement of which an expression is being evaluated sees expired rows.
#[inline]
pub fn sees_all() -> bool {
    // SAFETY: the current memory context is one that exists.
    MARKED.get() && unsafe { is_below_mark(pg_sys::CurrentMemoryContext) }
}

/// # Safety
/// The memory context exists.
unsafe fn is_below_mark(mut context: MemoryContext) -> bool {
    // SAFETY: the contexts above one that exists do so too. A row that is evaluated again has a statement's
    // memory directly below that of its statement; the statements of a function have other memory in between.
    unsafe {
        while !context.is_null() {
            let above = (*context).parent;
            if is_marked(context) {
                return true;
            }
            if is_of_statement(context) && !is_of_statement(above) {
                return false;
            }
            context = above;
        }
        false
    }
}

/// # Safety
/// NULL or a memory context.
unsafe fn is_of_statement(context: MemoryContext) -> bool {
    // SAFETY: the name is a constant of Postgres' or of another library's.
    unsafe {
        !context.is_null()
            && !(*context).name.is_null()
            && CStr::from_ptr((*context).name) == STATEMENT
    }
}

/// # Safety
/// A memory context.
unsafe fn is_marked(context: MemoryContext) -> bool {
    // SAFETY: the callbacks of a context are a list of what lives as long as the context.
    unsafe {
        let mut callback = (*context).reset_cbs;
        while !callback.is_null() {
            if std::ptr::eq((*callback).arg.cast(), &raw const MARK) {
                return true;
            }
            callback = (*callback).next;
        }
        false
    }
}
