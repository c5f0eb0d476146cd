//! Runs transactions of a background worker as another role, such as the owner of a cache.
//!
//! The worker itself is authenticated as the bootstrap superuser until it ends, and user-defined code that runs in
//! it must not regain those privileges. Two measures prevent that. The session user is the role, so the role's own
//! memberships limit the roles that it can assume. And SECURITY_LOCAL_USERID_CHANGE is set meanwhile, so SET ROLE
//! and SET SESSION AUTHORIZATION fail. Either measure alone leaves a way around it. Deferred triggers run under
//! both, at the commit.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::time::Duration;

use pgrx::pg_sys::{self, Oid};

use super::background::{self, caught};
use crate::pg::session::failure::Failure;

/// The role as which a worker without a user is authenticated (catalog/pg_authid.dat).
const BOOTSTRAP_SUPERUSER: Oid = Oid::from_u32(10);
/// From utils/timeout.h, the same in versions 15 to 19.
const STATEMENT_TIMEOUT: i32 = 3;

unsafe extern "C-unwind" {
    fn enable_timeout_after(id: i32, delay_ms: i32);
    fn disable_timeout(id: i32, keep_indicator: bool);
    fn ResetSequenceCaches();
}

/// Settings for one transaction.
pub type Settings = [(CString, CString)];

/// The conditions under which a transaction runs.
pub struct Terms<'t> {
    pub role: Oid,
    /// The role's own settings, which apply in the transaction.
    pub settings: &'t Settings,
    /// The longest wait for a lock, if shorter than lock_timeout. None: lock_timeout alone.
    pub patience: Option<Duration>,
    /// Milliseconds of the role's lock_timeout; 0: none. Set once the transaction has begun.
    pub lock_timeout: Cell<i32>,
    /// Whether statement_timeout ends the transaction. A worker arms that timeout nowhere else.
    pub is_timed: bool,
}

/// Runs `work` in a transaction of its own under the role, with a snapshot. Rolls back after an error, and returns
/// the error. The changes are visible when this returns.
pub fn in_transaction<R>(terms: &Terms<'_>, work: impl FnOnce() -> R) -> Result<R, Failure> {
    // SAFETY: a plain C variable of this process.
    let own_timeout = unsafe { pg_sys::LockTimeout };
    let done = caught(|| {
        // SAFETY: no transaction is open in a worker's main loop; the snapshot is popped before the transaction ends,
        // by the abort after an error.
        unsafe {
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
            switch_to(terms.role);
            apply(terms);
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        }
        let result = work();
        // SAFETY: as above; `work` has popped its own snapshots. Deferred triggers run here.
        unsafe {
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        }
        result
    });
    // SAFETY: the transaction has ended, and with it all code that ran for the role.
    unsafe {
        disable_timeout(STATEMENT_TIMEOUT, false);
        pg_sys::LockTimeout = own_timeout;
        pg_sys::SetUserIdAndSecContext(BOOTSTRAP_SUPERUSER, 0);
        pg_sys::SetSessionAuthorization(BOOTSTRAP_SUPERUSER, true);
    }
    done
}

/// # Safety
/// In a transaction of a worker that is authenticated as the bootstrap superuser.
unsafe fn switch_to(role: Oid) {
    // SAFETY: by the caller's contract. An abort undoes the second call, and the caller undoes both.
    unsafe {
        pg_sys::SetSessionAuthorization(role, pg_sys::superuser_arg(role));
        let context = pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32;
        pg_sys::SetUserIdAndSecContext(role, context);
    }
}

/// # Safety
/// In a transaction.
unsafe fn apply(terms: &Terms<'_>) {
    for (name, value) in terms.settings {
        // SAFETY: both texts live through the call, which copies them; an error ends the transaction.
        unsafe { set_local(name, value) };
    }
    // SAFETY: plain C variables of this process. Only waits for a lock read the first; the end of the transaction
    // restores it.
    unsafe {
        terms.lock_timeout.set(pg_sys::LockTimeout);
        if let Some(patience) = terms.patience {
            let most = patience.as_millis().clamp(1, i32::MAX as u128) as i32;
            pg_sys::LockTimeout = match pg_sys::LockTimeout {
                own if own > 0 => own.min(most),
                _ => most,
            };
        }
        if terms.is_timed && pg_sys::StatementTimeout > 0 {
            enable_timeout_after(STATEMENT_TIMEOUT, pg_sys::StatementTimeout);
        }
    }
}

/// # Safety
/// In a transaction, whose end restores the setting.
unsafe fn set_local(name: &CStr, value: &CStr) {
    // SAFETY: as above.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_LOCAL,
            true,
            pg_sys::WARNING as i32,
            false,
        );
    }
}

/// Runs transactions that wait no longer than this for a lock.
pub fn within<R>(patience: Duration, work: impl FnOnce() -> R) -> R {
    // SAFETY: a plain C variable of this process, which waits for a lock read; an error of Postgres does not leave
    // `work`.
    unsafe {
        let own_timeout = pg_sys::LockTimeout;
        pg_sys::LockTimeout = patience.as_millis().clamp(1, i32::MAX as u128) as i32;
        let result = work();
        pg_sys::LockTimeout = own_timeout;
        result
    }
}

/// Discards what user-defined code may have left in the session: settings, temporary tables, cursors, locks. The
/// next code may run as another role.
pub fn discard() -> Result<(), Failure> {
    background::in_transaction(|| {
        // SAFETY: the calls of DISCARD ALL, in a transaction of its own, in which nothing is open. The kept plans of
        // this library are not among the prepared statements.
        unsafe {
            pg_sys::PortalHashTableDeleteAll();
            pg_sys::ResetAllOptions();
            pg_sys::DropAllPreparedStatements();
            pg_sys::LockReleaseAll(pg_sys::USER_LOCKMETHOD as pg_sys::LOCKMETHODID, true);
            pg_sys::ResetTempTableNamespace();
            ResetSequenceCaches();
        }
    })
}
