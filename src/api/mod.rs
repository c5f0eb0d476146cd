//! What a user calls: one Rust function for each SQL function of `sql/pgcache--*.sql`.
//!
//! Here arguments are checked, privileges named and values converted; what a call means is said in
//! `cache`. The SQL declarations are written by hand; a wrong one would be undefined behaviour, so
//! `t/tests/signatures.rs` compares each with its function here.

pub mod batch;
pub mod definition;
pub mod depend;
pub mod distribute;
pub mod expiry;
pub mod limit;
pub mod monitor;
pub mod read;
pub mod refresh;
pub mod remove;
pub mod resp;
pub mod write;

use pgrx::pg_sys::panic::ErrorReport;

use crate::pg::catalog::privilege::Privileges;

/// What every function gives: its result, or an error for the user.
pub type Answer<T> = Result<T, ErrorReport>;

/// Privileges by kind of function, as docs/reference.md lists them.
pub const TO_READ: Privileges = Privileges::SELECT;
pub const TO_WRITE: Privileges = Privileges::SELECT
    .and(Privileges::INSERT)
    .and(Privileges::UPDATE);
pub const TO_DELETE: Privileges = Privileges::DELETE;
pub const TO_TAKE: Privileges = Privileges::SELECT.and(Privileges::DELETE);
