//! A portal that marks the last moment of a transaction at which user-defined code may run.
//!
//! A pre-commit callback is too late to run user-defined code. Postgres closes the cursors before the callbacks, so a
//! cursor opened in a callback would outlive the data that it reads. And other extensions' callbacks may have run
//! before pgcache's: a postgres_fdw connection that begins after postgres_fdw's callback crashes the server. So this
//! module creates an invisible portal that runs nothing, and acts when Postgres closes this portal with the
//! transaction's other portals. Postgres then closes any new portals and fires deferred triggers, again and again until
//! no portal remains, and only then calls the callbacks.

use std::cell::Cell;
use std::ffi::CString;

use pgrx::pg_sys;

use crate::pg::events::{self, Moment};
use crate::pg::hooks::two_phase_commit;
use crate::pg::memory::pg_list;
use crate::pg::session::{self, random};

thread_local! {
    /// Whether the portal exists in this transaction.
    static WAITS: Cell<bool> = const { Cell::new(false) };
    /// Whether the pre-commit callbacks are running or have run.
    static PASSED: Cell<bool> = const { Cell::new(false) };
    /// The portal's name. It is random, because a client that guessed it could close the portal and so bring the last
    /// moment forward.
    static NAME: CString = CString::new(format!("pgcache {:016x}", random::number())).unwrap_or_default();
}

/// Requests [`Moment::Ending`] for this transaction. Does nothing after that moment.
pub fn request() {
    if WAITS.get() || PASSED.get() || session::in_parallel_mode() {
        return;
    }
    // SAFETY: inside a transaction, which owns the new portal; the name is copied.
    NAME.with(|name| unsafe {
        let portal = pg_sys::CreatePortal(name.as_ptr(), true, true);
        (*portal).visible = false;
        (*portal).status = pg_sys::PortalStatus::PORTAL_DONE; // runs nothing
        (*portal).cleanup = Some(closed);
    });
    WAITS.set(true);
}

/// Records that the pre-commit callbacks run.
pub fn pass() {
    PASSED.set(true);
}

/// Resets the state at the end of the transaction.
pub fn reset() {
    PASSED.set(false);
}

/// Closes the transaction's cursors, which Postgres would close next. The observer calls this before its work at the
/// end of the transaction. A table that a cursor reads can be neither altered nor truncated, and Postgres closes
/// portals in no reliable order.
pub fn close_cursors() {
    // SAFETY: the commit itself calls this function. It allows any call in the cleanup of a portal, skips the active
    // portal of this module, and reads the list of portals again after each portal that it closes.
    unsafe { pg_sys::PreCommit_Portals(two_phase_commit::is_requested()) };
}

/// Emits [`Moment::Ending`] at the end of the transaction. Postgres calls this when the portal closes, which also
/// happens at the end of its savepoint and with CLOSE ALL.
unsafe extern "C-unwind" fn closed(portal: pg_sys::Portal) {
    WAITS.set(false);
    // SAFETY: the portal exists until this returns. Its cleanup is called only once, whatever the result.
    unsafe {
        (*portal).cleanup = None;
        let ends =
            pg_sys::IsTransactionState() && !pg_sys::ActiveSnapshotSet() && !closes_cursors();
        if ends {
            pg_sys::panic::pgrx_extern_c_guard(|| {
                let _kept = Kept::from_closing(portal);
                events::emit(|observer| (observer.transaction)(Moment::Ending));
            });
        }
    }
}

/// The portal while Postgres closes it. It stays active until the observer has finished, so that CLOSE ALL skips it and
/// [`request`] creates no second portal of the same name. The observer itself handles every change made before it
/// finishes.
struct Kept(pg_sys::Portal);

impl Kept {
    /// # Safety
    /// The portal exists as long as the result.
    unsafe fn from_closing(portal: pg_sys::Portal) -> Kept {
        // SAFETY: by the contract of this function.
        unsafe { (*portal).status = pg_sys::PortalStatus::PORTAL_ACTIVE };
        WAITS.set(true);
        Kept(portal)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: as in `from_closing`. This also runs after an error; the abort then closes the portal.
        unsafe { (*self.0).status = pg_sys::PortalStatus::PORTAL_DONE };
        WAITS.set(false);
    }
}

/// Returns whether the running statement is CLOSE. A CLOSE inside a function is not found here, but has a snapshot,
/// which the caller checks.
fn closes_cursors() -> bool {
    // SAFETY: a variable of this process; a running portal has its statements, each of which is read after its tag.
    unsafe {
        let active = pg_sys::ActivePortal;
        !active.is_null()
            && pg_list::pointers::<pg_sys::PlannedStmt>((*active).stmts)
                .into_iter()
                .any(|statement| {
                    let utility = (*statement).utilityStmt;
                    !utility.is_null() && (*utility).type_ == pg_sys::NodeTag::T_ClosePortalStmt
                })
    }
}
