//! The fifth model: the promotion of a standby whose clients used memory caches while it replayed WAL.
//!
//! A standby accepts writes to memory caches. Replayed changes remove no entries from them, so an entry that was made
//! from a source may be out of date when the standby becomes the primary. Entries that depend on no source (rate
//! limits, locks, sessions) must survive. The promises: **no read shows a fetched value whose source had changed before
//! the read began; after the promotion, the same holds for entries that a caller set by hand on the standby; entries
//! without dependencies stay.** If a caller sets an entry by hand on a primary, the caller is responsible for its
//! value.
//!
//! # The rules
//!
//! | rule | clause |
//! |---|---|
//! | during recovery, neither a fetch nor a client with a lease stores anything in a cache with dependencies | `StandbyStoresNothing` |
//! | nor does a fetch that began during recovery and ends later: it checks for recovery before its first lookup, and remembers the result | `LoadCarriesRecovery` |
//! | a slot that was taken during recovery is opened before its first use after the promotion, and loses its entries if the cache has dependencies | `OpenerDrops` |
//! | the entries are removed before the slot counts as open | `DropBeforeOpen` |
//! | a network process, which sees no catalogs, uses only slots that were opened | `FrontChecks` |
//! | entries without dependencies stay | `KeepsIndependent` |
//! | a writer on the new primary marks the key, and a load that began before stores nothing | `MarkVoids` |
//!
//! Each of these is one atomic step: a section (code under one partition lock), the replay of a change, the end of
//! recovery, and the opening of a slot.

mod model;
mod steps;

pub use model::{Actor, Clause, Model, Violation, all};
