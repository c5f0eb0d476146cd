//! Leases: when several sessions miss a key, one of them computes the entry. This module decides which session
//! computes, which sessions wait, and whether the computed value may be stored.
//!
//! - A lease of `cache_fetch` belongs to a session. On a memory cache it ends when the value is stored; on a table
//!   cache it ends with the transaction (commit or rollback), because other sessions see the value only after a
//!   commit.
//! - A lease of `cache_lease` belongs to the client that knows its number. It ends when the value is stored (on a
//!   table cache: committed), when it is released, or when its time is up.
//! - Any change of the key by another session voids a lease.
//!
//! The records are in [`leases`]; the leases that end with a transaction are in [`held`]. A caller that has missed a
//! key calls [`acquire`] and [`waiting`]. [`load_token`] permits storing without a lease. [`undo_marks`] undoes the
//! marks that keep sessions from granting leases, filling in copies and storing loaded values.
//! [`unverified_after_restart`] finds the caches that grant no lease after a restart until they are verified.

pub mod acquire;
pub mod held;
pub mod leases;
pub mod load_token;
pub mod undo_marks;
pub mod unverified_after_restart;
pub mod waiting;
