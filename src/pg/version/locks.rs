//! Finds the holders of locks, takes locks without waiting, and returns the oldest transaction in the commit log.

use pgrx::pg_sys;

/// Postgres' number for AddinShmemInitLock, from lwlocknames.txt in 15 and 16, and from lwlocklist.h from 17 on.
pub const ADDIN_SHMEM_INIT_LOCK: usize = 21;

/// Returns whether a transaction that was prepared before the server's start holds a lock in a mode that conflicts
/// with this one.
pub fn has_recovered_holder(tag: &pg_sys::LOCKTAG, mode: pg_sys::LOCKMODE) -> bool {
    // SAFETY: the list ends with an invalid id, and this function must free it.
    unsafe {
        let first = pg_sys::GetLockConflicts(tag, mode, std::ptr::null_mut());
        let (mut next, mut found) = (first, false);
        while !found && (*next).localTransactionId != pg_sys::InvalidLocalTransactionId {
            found = is_recovered(&*next);
            next = next.add(1);
        }
        pg_sys::pfree(first.cast());
        found
    }
}

/// Returns whether this transaction was recovered at the server's start, so that it belongs to no known session.
#[cfg(any(feature = "pg15", feature = "pg16"))]
fn is_recovered(id: &pg_sys::VirtualTransactionId) -> bool {
    id.backendId == pg_sys::InvalidBackendId
}

/// Returns whether this transaction was recovered at the server's start, so that it belongs to no known session.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
fn is_recovered(id: &pg_sys::VirtualTransactionId) -> bool {
    id.procNumber == pg_sys::INVALID_PROC_NUMBER
}

/// Takes a lock if it is free, and stores its entry in this process's lock table in `local`.
///
/// # Safety
/// The entry in `local` is valid only while the process holds the lock.
pub unsafe fn try_lock(
    tag: &pg_sys::LOCKTAG,
    mode: pg_sys::LOCKMODE,
    local: &mut *mut pg_sys::LOCALLOCK,
) -> pg_sys::LockAcquireResult::Type {
    // SAFETY: the tag is copied; with `dontWait` the call does not wait; `local` lives through the call, which stores
    // there the entry of a lock that this process now holds.
    unsafe {
        pg_sys::LockAcquireExtended(
            tag,
            mode,
            false,
            true,
            false,
            local,
            #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
            false,
        )
    }
}

/// Returns whether the transaction holds a lock in this mode; stronger modes do not count.
pub fn has_lock(tag: &pg_sys::LOCKTAG, mode: pg_sys::LOCKMODE) -> bool {
    // SAFETY: reads this process' own table of locks by a tag that lives through the call.
    unsafe {
        pg_sys::LockHeldByMe(
            tag,
            mode,
            #[cfg(not(any(feature = "pg15", feature = "pg16")))]
            false,
        )
    }
}

/// Returns the oldest transaction whose outcome the commit log still contains.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn oldest_in_log() -> u32 {
    // SAFETY: the structure is in shared memory as long as the server runs, and the code reads a single word.
    unsafe { (&raw const (*pg_sys::ShmemVariableCache).oldestClogXid).read_volatile() }.into_inner()
}

/// Returns the oldest transaction whose outcome the commit log still contains.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn oldest_in_log() -> u32 {
    // SAFETY: the structure is in shared memory as long as the server runs, and the code reads a single word.
    unsafe { (&raw const (*pg_sys::TransamVariables).oldestClogXid).read_volatile() }.into_inner()
}
