//! Reads the state of the transaction: whether it can write, its snapshots, and the outcome of other transactions. Also
//! makes the WAL record of an abort durable ([`flush_abort`]).

use crate::pg::session::fault::{self, Fault};
use pgrx::pg_sys;

/// Returns whether the transaction can write tables: it is not read-only, and the server is not a standby.
pub fn is_writable() -> bool {
    // SAFETY: a plain C variable of this process.
    !unsafe { pg_sys::XactReadOnly } && !crate::pg::session::in_recovery()
}

/// Returns whether the transaction has an xid. A transaction with an xid may have written, and other sessions may wait
/// for its end.
pub fn has_xid() -> bool {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// Returns whether a row with this xmin was written by the transaction or one of its savepoints.
pub fn is_own(xmin: u32) -> bool {
    // SAFETY: compares with this process' own record of its transaction; any number is valid.
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

/// Allows writes while it lives, even after `SET TRANSACTION READ ONLY`, because earlier writes of the transaction may
/// require further writes at its end.
pub struct Writable(bool);

impl Writable {
    /// Allows writes until the result is dropped.
    pub fn enter() -> Writable {
        // SAFETY: a plain C variable of this process; an abort restores it as well.
        unsafe {
            let former = pg_sys::XactReadOnly;
            pg_sys::XactReadOnly = false;
            Writable(former)
        }
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        // SAFETY: the variable of this process that `enter` has set, restored to its former value.
        unsafe { pg_sys::XactReadOnly = self.0 };
    }
}

/// Keeps a snapshot active while it lives. Utility statements need an active snapshot, and after the commit has begun
/// none is active.
pub struct Snapshot(());

impl Snapshot {
    /// Makes the transaction's snapshot the active one.
    pub fn enter() -> Snapshot {
        // SAFETY: the caller is inside a transaction; drop pops the snapshot, or after an error the abort does.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot()) };
        Snapshot(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: `enter` pushed the snapshot; later snapshots have been popped.
            unsafe { pg_sys::PopActiveSnapshot() };
        }
    }
}

/// Returns whether the transaction's only snapshot shows every committed transaction. Returns false if any transaction
/// has ended since the snapshot was taken, even if it changed nothing. Must not be called for a snapshot that was taken
/// on a standby, because such a snapshot does not list running transactions in `xcnt`.
pub fn snapshot_is_latest() -> bool {
    if crate::pg::session::in_parallel_mode() {
        return false;
    }
    // SAFETY: both snapshots are static or the transaction's own, and the code takes no other snapshot in between.
    unsafe {
        let (own, latest) = (
            pg_sys::GetTransactionSnapshot(),
            pg_sys::GetLatestSnapshot(),
        );
        (*own).xmax == (*latest).xmax && (*own).xcnt == (*latest).xcnt
    }
}

/// Returns whether the transaction's only snapshot was taken while the server was a standby. The standby may have been
/// promoted after that. The snapshot must exist.
pub fn snapshot_is_of_a_standby() -> bool {
    // SAFETY: the snapshot belongs to the transaction and stays until its end.
    unsafe { (*pg_sys::GetTransactionSnapshot()).takenDuringRecovery }
}

/// Returns the maximum number of transactions that may be prepared at a time; at 0, PREPARE TRANSACTION fails.
pub fn most_prepared() -> usize {
    unsafe extern "C" {
        static max_prepared_xacts: std::ffi::c_int;
    }
    // SAFETY: a plain C variable of this process, which only the postmaster sets.
    unsafe { max_prepared_xacts }.max(0) as usize
}

/// Returns the 64-bit id of the transaction, also inside a savepoint. Assigns an id if the transaction has none.
pub fn full_xid() -> u64 {
    // SAFETY: inside a transaction; raises an error if the transaction cannot have an id.
    unsafe { pg_sys::GetTopFullTransactionId() }.value
}

/// Returns whether [`Decided::now`] may be called: inside a transaction and outside parallel mode, in which no snapshot
/// may be taken.
pub fn can_read_decided() -> bool {
    // SAFETY: reads the state of this process's transaction.
    unsafe { pg_sys::IsTransactionState() && !crate::pg::session::in_parallel_mode() }
}

/// Tells which transactions are decided: committed or rolled back for every snapshot that is taken now. No other source
/// is correct. Postgres writes the commit log before other sessions see the rows, and the list of prepared transactions
/// omits transactions that are still being prepared.
///
/// The caller must hold no lightweight lock.
pub struct Decided {
    next: u64,
}

impl Decided {
    /// Reads the current state, in a transaction. Takes a snapshot first. Without a snapshot, Postgres would report a
    /// running transaction as ended if it is older than all running transactions that this process knows.
    pub fn now() -> Decided {
        // SAFETY: in a transaction, by the caller's contract; the code keeps no pointer to the snapshot; taking it sets
        // this process's xmin.
        unsafe {
            pg_sys::GetLatestSnapshot();
            Decided {
                next: pg_sys::ReadNextFullTransactionId().value,
            }
        }
    }

    /// Returns whether the transaction with this 64-bit id is decided. The 32-bit number suffices to find it in
    /// progress, because no transaction stays in progress until its number is reused.
    pub fn is(&self, xid: u64) -> bool {
        const ROUND: u64 = 1 << 31;
        let in_progress = || {
            // SAFETY: any number is valid; no lightweight lock is held.
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

/// Returns whether a decided transaction has committed; None if the commit log no longer contains it.
pub fn outcome(xid: u64) -> Option<bool> {
    // SAFETY: by the comparison, the log still contains the number. Postgres removes only entries that are older than
    // all transactions that matter to sessions, and removes them long after that.
    unsafe {
        let next = pg_sys::ReadNextFullTransactionId().value;
        let oldest = u64::from(crate::pg::version::oldest_in_log());
        let age = |number: u64| (next as u32).wrapping_sub(number as u32);
        let is_there = next - xid <= u64::from(age(oldest));
        is_there
            .then(|| pg_sys::TransactionIdDidCommit(pg_sys::TransactionId::from_inner(xid as u32)))
    }
}

/// Returns the wall-clock time at which the transaction began. Its snapshots were taken later.
pub fn began() -> crate::pg::session::clock::Timestamp {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::GetCurrentTransactionStartTimestamp() }
}

/// Waits until the WAL record of an abort that this process has just written is on disk. The abort of a transaction
/// that created files of unlogged tables calls this before Postgres removes the files.
///
/// Without the flush, a crash shortly after (within wal_writer_delay) keeps the server from starting. The record of the
/// transaction's end is lost, so recovery replays the creation of a file and finds that the file already exists. A
/// second start succeeds, but no administrator expects to need one (Postgres bug 17731).
pub fn flush_abort() {
    // SAFETY: reads a variable of this process, the start of the last record that it wrote; a flush reaches the end of
    // all inserted records, including this one, and needs no transaction.
    unsafe {
        if pg_sys::ProcLastRecPtr != 0 && !pg_sys::RecoveryInProgress() {
            pg_sys::XLogFlush(pg_sys::ProcLastRecPtr + 1);
        }
    }
}
