//! Two-phase commit as statements: that PREPARE TRANSACTION is under way, and that a prepared transaction
//! was decided.
//!
//! Postgres calls no extension when COMMIT PREPARED or ROLLBACK PREPARED has made a transaction's rows
//! visible, or has not. Whoever ran the statement hears of it here, in the transaction of the statement.

use std::cell::Cell;
use std::ffi::c_char;

use pgrx::pg_sys;

use crate::pg::events::{self, Moment};
use crate::pg::memory::unguarded;
use crate::pg::shmem::worker_state;

thread_local! {
    /// The transaction ends with PREPARE TRANSACTION.
    static ASKED_FOR: Cell<bool> = const { Cell::new(false) };
}

static mut FORMER: pg_sys::ProcessUtility_hook_type = None;

/// Hooks into statements that are not planned.
pub fn register() {
    // SAFETY: called once while the library is loaded, when nothing else reads the variable; the
    // function lives as long as the process.
    unsafe {
        FORMER = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(run);
    }
}

/// Whether the transaction that ends is to be prepared.
pub fn is_asked_for() -> bool {
    ASKED_FOR.get()
}

/// The transaction has ended.
pub fn forget() {
    ASKED_FOR.set(false);
}

/// Postgres calls this for each statement that it does not plan, without pgrx's guard.
unsafe extern "C-unwind" fn run(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    use pg_sys::TransactionStmtKind::*;
    // SAFETY: the arguments are Postgres' own and are passed on. No frame here holds anything to drop.
    unsafe {
        let kind = kind_of((*statement).utilityStmt);
        // One that has failed is rolled back by it, and has told us of its end already.
        if kind == Some(TRANS_STMT_PREPARE) && pg_sys::IsTransactionState() {
            ASKED_FOR.set(true);
        }
        let run = FORMER.unwrap_or(unguarded::standard_ProcessUtility);
        run(
            statement,
            text,
            read_only,
            context,
            parameters,
            environment,
            receiver,
            completion,
        );
        if matches!(
            kind,
            Some(TRANS_STMT_COMMIT_PREPARED | TRANS_STMT_ROLLBACK_PREPARED)
        ) {
            worker_state::prepared_ended();
            let tell = || events::emit(|observer| (observer.transaction)(Moment::PreparedEnded));
            pg_sys::panic::pgrx_extern_c_guard(tell);
        }
    }
}

/// # Safety
/// The node is a statement.
unsafe fn kind_of(node: *const pg_sys::Node) -> Option<pg_sys::TransactionStmtKind::Type> {
    // SAFETY: the node is looked at after its tag.
    unsafe {
        match (*node).type_ {
            pg_sys::NodeTag::T_TransactionStmt => {
                Some((*node.cast::<pg_sys::TransactionStmt>()).kind)
            }
            _ => None,
        }
    }
}
