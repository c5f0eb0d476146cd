//! Of all who miss a key, one computes its entry: who that is, who waits, and whether what was
//! computed may be stored.
//!
//! - A lease of `cache_fetch` belongs to a session. On a memory cache it ends when the value is
//!   stored; on a table cache with the transaction (commit or rollback), because others see the
//!   value from then on.
//! - A lease of `cache_lease` belongs to whoever knows its number. It ends when the value is stored
//!   (on a table cache: committed), when it is released, or by time.
//! - Any change of the key by others voids it.
//!
//! [`leases`]: records in the tier. [`held`]: what a transaction has of them. [`ask`] and [`wait`]:
//! what a caller does who has missed a key. [`load_token`]: storing without a lease. [`lowering`]: how marks
//! are undone, which keep leases from being granted; [`unproven`]: what keeps them from it after a restart.

pub mod ask;
pub mod held;
pub mod leases;
pub mod load_token;
pub mod undo_marks;
pub mod unverified_after_restart;
pub mod wait;
