//! Follows the statements of two-phase commit: records that PREPARE TRANSACTION is running, and reports that a prepared
//! transaction was committed or rolled back. The module `utility` calls this module.
//!
//! Postgres calls no extension when COMMIT PREPARED or ROLLBACK PREPARED decides a transaction. So the session that
//! runs the statement reports the decision here, in the statement's own transaction.

use std::cell::Cell;

use pgrx::pg_sys;
use pgrx::pg_sys::TransactionStmtKind::{
    self, TRANS_STMT_COMMIT_PREPARED, TRANS_STMT_PREPARE, TRANS_STMT_ROLLBACK_PREPARED,
};

use crate::pg::events::{self, Moment};
use crate::pg::shmem::worker_state;

thread_local! {
    /// Whether the transaction ends with PREPARE TRANSACTION.
    static REQUESTED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the transaction that is ending will be prepared instead of committed.
pub fn is_requested() -> bool {
    REQUESTED.get()
}

/// Resets the state at the end of the transaction.
pub fn forget() {
    REQUESTED.set(false);
}

/// Begins a statement. Returns the kind of a transaction statement, for [`end`]; None for any other statement.
///
/// # Safety
/// The node is a utility statement. The caller's frame holds nothing to drop.
pub unsafe fn begin(statement: *const pg_sys::Node) -> Option<TransactionStmtKind::Type> {
    // SAFETY: by the caller's contract. The transaction's state may be read at any time.
    unsafe {
        let kind = kind_of(statement);
        // PREPARE TRANSACTION in a failed transaction rolls it back, and the end of a failed transaction was already
        // reported.
        if kind == Some(TRANS_STMT_PREPARE) && pg_sys::IsTransactionState() {
            REQUESTED.set(true);
        }
        kind
    }
}

/// Ends a statement that raised no error: reports that a prepared transaction was decided.
///
/// # Safety
/// The caller's frame holds nothing to drop, and C calls it.
pub unsafe fn end(kind: Option<TransactionStmtKind::Type>) {
    if matches!(
        kind,
        Some(TRANS_STMT_COMMIT_PREPARED | TRANS_STMT_ROLLBACK_PREPARED)
    ) {
        worker_state::prepared_ended();
        let notify = || events::emit(|observer| (observer.transaction)(Moment::PreparedEnded));
        // SAFETY: by the caller's contract.
        unsafe { pg_sys::panic::pgrx_extern_c_guard(notify) };
    }
}

/// # Safety
/// The node is a statement.
unsafe fn kind_of(node: *const pg_sys::Node) -> Option<TransactionStmtKind::Type> {
    // SAFETY: the node is read after its tag.
    unsafe {
        match (*node).type_ {
            pg_sys::NodeTag::T_TransactionStmt => {
                Some((*node.cast::<pg_sys::TransactionStmt>()).kind)
            }
            _ => None,
        }
    }
}
