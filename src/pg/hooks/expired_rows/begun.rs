//! Decides once for each statement, when the executor starts it, whether the statement sees expired rows.
//!
//! The decision must not change while the statement runs. A session may read a cursor later, under other settings and
//! as another role; for example, the caller of a SECURITY DEFINER function may read a cursor that the function opened.
//! So a statement that sees expired rows is marked by a callback in its memory context. The mark disappears with the
//! context, however the statement ends. Other statements have no mark and cost nothing.
//!
//! An expression finds the mark through the memory context in which it is evaluated, which is a descendant of the
//! statement's context.

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::guc::GucSetting;
use pgrx::pg_sys::{self, MemoryContext};

use crate::pg::memory::unguarded;
use crate::pg::version;

/// The setting `pgcache.show_expired`. While it is off, expired rows are hidden.
pub static SHOW_EXPIRED: GucSetting<bool> = GucSetting::<bool>::new(false);

/// Returns whether `pgcache.show_expired` is on and applies to a statement that begins now. It does not apply inside
/// SECURITY DEFINER functions: such a function may check, for example, whether a session of its application still
/// exists, and its caller must not be able to change the result by a setting.
pub fn shows_expired() -> bool {
    // SAFETY: reads variables of this process.
    SHOW_EXPIRED.get() && !unsafe { pg_sys::InLocalUserIdChange() }
}

unsafe extern "C-unwind" {
    // Reads a variable of the process and raises no error.
    fn InNoForceRLSOperation() -> bool;
}

/// The name of a statement's memory context. The context in which Postgres evaluates a row again, after a wait for the
/// row's lock, has the same name.
const STATEMENT: &CStr = c"ExecutorState";

/// The address of this variable identifies pgcache's callback.
static MARK: u8 = 0;

thread_local! {
    /// Whether this process has ever marked a statement.
    static MARKED: Cell<bool> = const { Cell::new(false) };
}

/// Installs the hooks into the executor.
pub fn register() {
    // SAFETY: called once while the library is loaded; neither function has anything to drop.
    unsafe { version::on_statements(begun, may_be_parallel) };
}

/// Returns whether a statement that begins now sees expired rows. It does if the session shows them, or if it is a
/// query of Postgres' referential integrity, the only kind of query for which Postgres sets `InNoForceRLSOperation`.
/// Deleting a parent row must also delete its expired children; otherwise a dump, which contains the children, could
/// not be restored.
fn would_see_all() -> bool {
    // SAFETY: as declared above.
    shows_expired() || unsafe { InNoForceRLSOperation() }
}

/// # Safety
/// The statement has begun. The caller's frame holds nothing to drop.
unsafe fn begun(query: *mut pg_sys::QueryDesc) {
    if !would_see_all() {
        return;
    }
    // SAFETY: by the caller's contract: the statement has its state, unless the hook of another library began it
    // without one. The callback is allocated in the memory context at whose end Postgres calls it, as Postgres advises.
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

/// Does nothing, because the presence of the callback is the mark.
unsafe extern "C-unwind" fn nothing(_: *mut std::ffi::c_void) {}

/// Returns whether a statement may use parallel workers. It may only if the workers would reach the same decision,
/// because each worker begins the statement again, and decides by the settings at the moment when it begins.
///
/// # Safety
/// The statement has begun.
unsafe fn may_be_parallel(query: *mut pg_sys::QueryDesc) -> bool {
    // SAFETY: by the caller's contract.
    unsafe {
        let (plan, state) = ((*query).plannedstmt, (*query).estate);
        let needs_parallel = !plan.is_null() && (*plan).parallelModeNeeded && !state.is_null();
        !needs_parallel || is_marked((*state).es_query_cxt) == would_see_all()
    }
}

/// Returns whether the statement whose expression is being evaluated sees expired rows.
#[inline]
pub fn sees_all() -> bool {
    // SAFETY: the current memory context exists.
    MARKED.get() && unsafe { is_below_mark(pg_sys::CurrentMemoryContext) }
}

/// # Safety
/// The memory context exists.
unsafe fn is_below_mark(mut context: MemoryContext) -> bool {
    // SAFETY: the ancestors of an existing context exist, too. A row that is evaluated again has a statement context
    // directly below that of its statement; the statements of a function have other contexts in between.
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
/// `context` is NULL or a memory context.
unsafe fn is_of_statement(context: MemoryContext) -> bool {
    // SAFETY: the name is a constant of Postgres or of another library.
    unsafe {
        !context.is_null()
            && !(*context).name.is_null()
            && CStr::from_ptr((*context).name) == STATEMENT
    }
}

/// # Safety
/// `context` is a memory context.
unsafe fn is_marked(context: MemoryContext) -> bool {
    // SAFETY: the callbacks of a context are a list whose elements live as long as the context.
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
