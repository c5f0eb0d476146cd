//! Two-phase commit as statements: that PREPARE TRANSACTION is under way, and that a prepared transaction
//! was decided. Called by `utility`.
//!
//! Postgres calls no extension when COMMIT PREPARED or ROLLBACK PREPARED has made a transaction's rows
//! visible, or has not. Whoever ran the statement hears of it here, in the transaction of the statement.

use std::cell::Cell;

use pgrx::pg_sys;
use pgrx::pg_sys::TransactionStmtKind::{
    self, TRANS_STMT_COMMIT_PREPARED, TRANS_STMT_PREPARE, TRANS_STMT_ROLLBACK_PREPARED,
};

use crate::pg::events::{self, Moment};
use crate::pg::shmem::worker_state;

thread_local! {
    /// The transaction ends with PREPARE TRANSACTION.
    static ASKED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// Whether the transaction that ends is to be prepared.
pub fn is_asked_for() -> bool {
    ASKED_FOR.get()
}

/// The transaction has ended.
pub fn forget() {
    ASKED_FOR.set(false);
}

/// A statement begins; gives what it does to a transaction, for its end.
///
/// # Safety
/// The node is a statement that is not planned. In a frame that holds nothing to drop.
pub unsafe fn begin(statement: *const pg_sys::Node) -> Option<TransactionStmtKind::Type> {
    // SAFETY: as the caller says. Whether a transaction is open may be asked at any time.
    unsafe {
        let kind = kind_of(statement);
        // One that has failed is rolled back by it, and has told us of its end already.
        if kind == Some(TRANS_STMT_PREPARE) && pg_sys::IsTransactionState() {
            ASKED_FOR.set(true);
        }
        kind
    }
}

/// It has ended without an error.
///
/// # Safety
/// In a frame that holds nothing to drop, called from C.
pub unsafe fn end(kind: Option<TransactionStmtKind::Type>) {
    if matches!(
        kind,
        Some(TRANS_STMT_COMMIT_PREPARED | TRANS_STMT_ROLLBACK_PREPARED)
    ) {
        worker_state::prepared_ended();
        let tell = || events::emit(|observer| (observer.transaction)(Moment::PreparedEnded));
        // SAFETY: as the caller says.
        unsafe { pg_sys::panic::pgrx_extern_c_guard(tell) };
    }
}

/// # Safety
/// The node is a statement.
unsafe fn kind_of(node: *const pg_sys::Node) -> Option<TransactionStmtKind::Type> {
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
