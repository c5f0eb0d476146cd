//! Runs transactions of a background worker as another role, such as the owner of a cache.
//!
//! The worker itself is authenticated as the bootstrap superuser until it ends, and user-defined code that runs in it
//! must not regain those privileges. Two measures prevent this. First, the session user is the role, so the role's own
//! memberships limit the roles that it can assume. Second, SECURITY_LOCAL_USERID_CHANGE is set during the transaction,
//! so SET ROLE and SET SESSION AUTHORIZATION fail. User-defined code could circumvent either measure alone. Both also
//! apply to deferred triggers, which run at the commit.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::time::Duration;

use pgrx::pg_sys::{self, Oid};

use super::background::{self, caught};
use crate::pg::session::failure::Failure;

/// The role of a worker that connects without a user name (catalog/pg_authid.dat).
const BOOTSTRAP_SUPERUSER: Oid = Oid::from_u32(10);
/// From utils/timeout.h, the same in Postgres 15 to 19.
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
    /// The maximum wait for a lock, which applies if it is shorter than lock_timeout; None if only lock_timeout
    /// applies.
    pub patience: Option<Duration>,
    /// The role's lock_timeout in milliseconds; 0 means no timeout. Set once the transaction has begun.
    pub lock_timeout: Cell<i32>,
    /// Whether statement_timeout ends the transaction. A worker does not use this timeout elsewhere.
    pub is_timed: bool,
}

/// Runs `work` in a separate transaction under the role, with a snapshot. Rolls back after an error, and returns the
/// error. When this function returns, other sessions see the changes.
pub fn in_transaction<R>(terms: &Terms<'_>, work: impl FnOnce() -> R) -> Result<R, Failure> {
    // SAFETY: a plain C variable of this process.
    let own_timeout = unsafe { pg_sys::LockTimeout };
    let done = caught(|| {
        // SAFETY: no transaction is open in a worker's main loop; the code pops the snapshot before the transaction
        // ends; after an error the abort does.
        unsafe {
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
            switch_to(terms.role);
            apply(terms);
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        }
        let result = work();
        // SAFETY: the code above pushed the snapshot and began the transaction; `work` has popped its own snapshots.
        // Deferred triggers run here.
        unsafe {
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        }
        result
    });
    // SAFETY: the transaction has ended, so no more code runs for the role.
    unsafe {
        disable_timeout(STATEMENT_TIMEOUT, false);
        pg_sys::LockTimeout = own_timeout;
        pg_sys::SetUserIdAndSecContext(BOOTSTRAP_SUPERUSER, 0);
        pg_sys::SetSessionAuthorization(BOOTSTRAP_SUPERUSER, true);
    }
    done
}

/// # Safety
/// The caller is in a transaction of a worker that is authenticated as the bootstrap superuser.
unsafe fn switch_to(role: Oid) {
    // SAFETY: by the caller's contract. An abort undoes the second call, and the caller of this function undoes both.
    unsafe {
        pg_sys::SetSessionAuthorization(role, pg_sys::superuser_arg(role));
        let context = pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32;
        pg_sys::SetUserIdAndSecContext(role, context);
    }
}

/// # Safety
/// The caller is in a transaction.
unsafe fn apply(terms: &Terms<'_>) {
    for (name, value) in terms.settings {
        // SAFETY: both texts live through the call, which copies them; an error ends the transaction.
        unsafe { set_local(name, value) };
    }
    // SAFETY: plain C variables of this process. Only lock waits read LockTimeout; `in_transaction` restores it after
    // the transaction.
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
/// The caller is in a transaction, whose end restores the setting.
unsafe fn set_local(name: &CStr, value: &CStr) {
    // SAFETY: both texts live through the call, and the transaction's end restores the setting.
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

/// Runs `work`, whose transactions wait at most `patience` for a lock.
pub fn within<R>(patience: Duration, work: impl FnOnce() -> R) -> R {
    // SAFETY: a plain C variable of this process, which only lock waits read; no Postgres error leaves `work`.
    unsafe {
        let own_timeout = pg_sys::LockTimeout;
        pg_sys::LockTimeout = patience.as_millis().clamp(1, i32::MAX as u128) as i32;
        let result = work();
        pg_sys::LockTimeout = own_timeout;
        result
    }
}

/// Discards session state that user-defined code may have left: settings, temporary tables, cursors, locks. Otherwise
/// the state would affect the next code, which may run as another role.
pub fn discard() -> Result<(), Failure> {
    background::in_transaction(|| {
        // SAFETY: these are the calls of DISCARD ALL, in a separate transaction without open cursors or snapshots in
        // use. The saved plans of this library are not prepared statements.
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
