//! The last moment of a transaction at which user-defined code may run.
//!
//! A callback before the commit is too late for that. Postgres has closed the cursors by then: one that is
//! opened afterwards outlives what it reads. And the callbacks of other extensions may have been there before ours: a
//! connection of postgres_fdw that begins afterwards ends the server. So a portal of ours, which nobody sees and
//! which runs nothing, waits for the place where Postgres closes the transaction's portals: it closes again whatever
//! comes meanwhile, fires what was deferred, and calls the callbacks when nothing is left.

use std::cell::Cell;
use std::ffi::CString;

use pgrx::pg_sys;

use crate::pg::events::{self, Moment};
use crate::pg::hooks::prepared;
use crate::pg::memory::pg_list;
use crate::pg::session::{self, random};

thread_local! {
    /// The portal is there.
    static WAITS: Cell<bool> = const { Cell::new(false) };
    /// The callbacks before the commit are being called, or have been.
    static PASSED: Cell<bool> = const { Cell::new(false) };
    /// Not to be guessed: whoever closed it would have the last moment come early.
    static NAME: CString = CString::new(format!("pgcache {:016x}", random::number())).unwrap_or_default();
}

/// Asks for [`Moment::Ending`] of this transaction, if that is still to come.
pub fn ask_for() {
    if WAITS.get() || PASSED.get() || session::in_parallel_mode() {
        return;
    }
    // SAFETY: inside a transaction, to which the portal belongs from now on; the name is copied.
    NAME.with(|name| unsafe {
        let portal = pg_sys::CreatePortal(name.as_ptr(), true, true);
        (*portal).visible = false;
        (*portal).status = pg_sys::PortalStatus::PORTAL_DONE; // nothing is to be run
        (*portal).cleanup = Some(closed);
    });
    WAITS.set(true);
}

/// The callbacks before the commit are called.
pub fn pass() {
    PASSED.set(true);
}

/// The transaction has ended.
pub fn reset() {
    PASSED.set(false);
}

/// Closes the transaction's cursors, as Postgres is about to, while the observer sees to the end: it closes portals in
/// no order that anybody could rely on, and a table that a cursor reads is neither altered nor truncated.
pub fn close_cursors() {
    // SAFETY: what the commit itself calls, and lets the cleanup of a portal call anything; it passes over
    // ours, which is active, and looks at all portals anew after each one that it has closed.
    unsafe { pg_sys::PreCommit_Portals(prepared::is_asked_for()) };
}

/// Postgres calls this when the portal goes: at the end of the transaction, of its savepoint, with CLOSE ALL.
unsafe extern "C-unwind" fn closed(portal: pg_sys::Portal) {
    WAITS.set(false);
    // SAFETY: the portal is there until this returns. It is not told a second time, whatever comes of this.
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

/// A portal that is being closed. Nobody else closes it meanwhile, as CLOSE ALL passes over one that is active, and no
/// second one of the name is made: the observer sees to all that comes until it is done.
struct Kept(pg_sys::Portal);

impl Kept {
    /// # Safety
    /// The portal is there as long as this.
    unsafe fn from_closing(portal: pg_sys::Portal) -> Kept {
        // SAFETY: as the caller says.
        unsafe { (*portal).status = pg_sys::PortalStatus::PORTAL_ACTIVE };
        WAITS.set(true);
        Kept(portal)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: as in `from_closing`. After an error, too: the abort closes it then.
        unsafe { (*self.0).status = pg_sys::PortalStatus::PORTAL_DONE };
        WAITS.set(false);
    }
}

/// Whether the statement that runs is CLOSE. Inside of a function one has a snapshot.
fn closes_cursors() -> bool {
    // SAFETY: a variable of this process; a portal that runs has its statements, of which each is looked at after
    // its tag.
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
