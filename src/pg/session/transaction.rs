//! What the transaction is and allows: writing, snapshots; and the durability of an abort.

use crate::pg::session::fault::{self, Fault};
use pgrx::pg_sys;

/// Whether tables can be written: not in a read-only transaction and not on a standby.
pub fn is_writable() -> bool {
    // SAFETY: a plain C variable of this process.
    !unsafe { pg_sys::XactReadOnly } && !crate::pg::session::in_recovery()
}

/// Whether the transaction has written something, so that others may wait for its end.
pub fn has_xid() -> bool {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// Whether a row with this xmin was written by the transaction or one of its savepoints.
pub fn is_own(xmin: u32) -> bool {
    // SAFETY: compares with what this process knows of its transaction; any number may be asked.
    unsafe { pg_sys::TransactionIdIsCurrentTransactionId(pg_sys::TransactionId::from_inner(xmin)) }
}

/// Raises 25006 in a read-only transaction and on a standby. `function` is the caller's name.
pub fn require_writable(function: &std::ffi::CStr) {
    // SAFETY: the name lives through both calls, which raise errors or return.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(function.as_ptr());
        pg_sys::PreventCommandDuringRecovery(function.as_ptr());
    }
}

/// While this lives, rows may be written, even after `SET TRANSACTION READ ONLY`: what follows from
/// the writes that the transaction made before that is still to be written.
pub struct Writable(bool);

impl Writable {
    /// Allows writes until the result is dropped.
    pub fn enter() -> Writable {
        // SAFETY: a plain C variable of this process; an abort sets it back as well.
        unsafe {
            let former = pg_sys::XactReadOnly;
            pg_sys::XactReadOnly = false;
            Writable(former)
        }
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        // SAFETY: the variable of this process that `enter` has set, to what it was then.
        unsafe { pg_sys::XactReadOnly = self.0 };
    }
}

/// While this lives, a snapshot is active. Utility statements need one, and none is active any more
/// once the commit has begun.
pub struct Snapshot(());

impl Snapshot {
    /// Makes the transaction's snapshot the active one.
    pub fn enter() -> Snapshot {
        // SAFETY: inside a transaction; popped by drop, after an error by the abort.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot()) };
        Snapshot(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: pushed in enter; what came after it has been popped.
            unsafe { pg_sys::PopActiveSnapshot() };
        }
    }
}

/// Whether the transaction's one snapshot shows all that is committed now. Says no where any
/// transaction has ended since it was taken, whatever that did. Not for a snapshot of a standby, which
/// keeps what is running elsewhere than in `xcnt`.
pub fn snapshot_is_latest() -> bool {
    if crate::pg::session::in_parallel_mode() {
        return false;
    }
    // SAFETY: both snapshots are static or the transaction's own, and nobody takes another one in
    // between.
    unsafe {
        let (own, latest) = (
            pg_sys::GetTransactionSnapshot(),
            pg_sys::GetLatestSnapshot(),
        );
        (*own).xmax == (*latest).xmax && (*own).xcnt == (*latest).xcnt
    }
}

/// Whether the transaction's one snapshot was taken while the server was a standby, which it need not
/// be any more. The transaction has one snapshot, which is there.
pub fn snapshot_is_of_a_standby() -> bool {
    // SAFETY: the snapshot is the transaction's own and stays to its end.
    unsafe { (*pg_sys::GetTransactionSnapshot()).takenDuringRecovery }
}

/// How many transactions may be prepared at a time; 0: none, as PREPARE TRANSACTION says itself.
pub fn most_prepared() -> usize {
    unsafe extern "C" {
        static max_prepared_xacts: std::ffi::c_int;
    }
    // SAFETY: a plain C variable of this process, which only the postmaster sets.
    unsafe { max_prepared_xacts }.max(0) as usize
}

/// The 64-bit id of the transaction, of the uppermost if there are savepoints; it gets one if it has
/// none.
pub fn full_xid() -> u64 {
    // SAFETY: inside a transaction; raises an error where it cannot have one.
    unsafe { pg_sys::GetTopFullTransactionId() }.value
}

/// Whether it can be asked which transactions are decided: in a transaction, and by no process of a
/// parallel query, which takes no snapshots.
pub fn can_ask_for_decided() -> bool {
    // SAFETY: reads what this process knows of its own transaction.
    unsafe { pg_sys::IsTransactionState() && !crate::pg::session::in_parallel_mode() }
}

/// Which of these transactions, each given by its 64-bit id, are committed or rolled back and seen as
/// that by whoever takes a snapshot now. Nothing else says so: the log of commits is written before
/// others see the rows, and the list of prepared transactions names none that is still being prepared.
///
/// Under no lightweight lock.
pub struct Decided {
    next: u64,
}

impl Decided {
    /// Asked in a transaction. Without a snapshot Postgres takes a transaction for decided that is
    /// older than any it has heard of.
    pub fn ask() -> Decided {
        // SAFETY: in a transaction, as the caller says; the snapshot is not kept, its xmin is.
        unsafe {
            pg_sys::GetLatestSnapshot();
            Decided {
                next: pg_sys::ReadNextFullTransactionId().value,
            }
        }
    }

    /// No transaction is in progress so long that its number comes again.
    pub fn is(&self, xid: u64) -> bool {
        const ROUND: u64 = 1 << 31;
        let in_progress = || {
            // SAFETY: any number may be asked for; no lightweight lock is held.
            unsafe {
                pg_sys::TransactionIdIsInProgress(pg_sys::TransactionId::from_inner(xid as u32))
            }
        };
        if fault::on(Fault::DecidedByLog) {
            return outcome(xid) == Some(true) || !in_progress();
        }
        self.next.saturating_sub(xid) > ROUND || !in_progress()
    }
}

/// How a transaction that is decided has ended; None where the log of commits no longer says so.
pub fn outcome(xid: u64) -> Option<bool> {
    // SAFETY: a number that the log still has, as the comparison says: what is cut off it is older than
    // any transaction of interest to others, and cut off long after.
    unsafe {
        let next = pg_sys::ReadNextFullTransactionId().value;
        let oldest = u64::from(crate::pg::version::oldest_in_log());
        let age = |number: u64| (next as u32).wrapping_sub(number as u32);
        let is_there = next - xid <= u64::from(age(oldest));
        is_there
            .then(|| pg_sys::TransactionIdDidCommit(pg_sys::TransactionId::from_inner(xid as u32)))
    }
}

/// When the transaction began, by the wall clock; its snapshots are younger.
pub fn began() -> crate::pg::session::clock::Timestamp {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::GetCurrentTransactionStartTimestamp() }
}

/// Waits until the record of an abort that this process has just written is on disk. For a
/// transaction that made files of unlogged tables, before Postgres removes them.
///
/// Without this, a crash in the next moments (wal_writer_delay) keeps the server from starting:
/// recovery replays that the file was made and finds it there, because the end of its transaction
/// is lost. It starts when it is told to a second time, which nobody knows at that hour (Postgres
/// bug 17731).
pub fn flush_abort() {
    // SAFETY: reads a variable of this process, the start of the last record that it wrote; a flush
    // goes up to the end of what has been inserted, hence of this record, and needs no transaction.
    unsafe {
        if pg_sys::ProcLastRecPtr != 0 && !pg_sys::RecoveryInProgress() {
            pg_sys::XLogFlush(pg_sys::ProcLastRecPtr + 1);
        }
    }
}
