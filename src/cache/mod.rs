//! Implements caches for the SQL API and the Redis protocol. Contains no unsafe code and no call of pg_sys: it reaches
//! Postgres through `pg`.
//!
//! The layers from the bottom up; a file names only modules of a lower layer, or of its own folder:
//!
//! 1. `model`: keys, deadlines, settings, statements, and transaction state with one part per savepoint.
//! 2. `tier`: slots of caches in the hot tier, hashed keys, reading and writing entries.
//! 3. `catalog`: the cache definitions that a session has loaded; it opens no cache.
//! 4. `lease`: which caller computes a missing entry.
//! 5. `table`: entries of table caches, and their copies in the tier.
//! 6. `commit`: changes of a transaction, marked before its commit and unmarked after it.
//! 7. `open`: takes the locks and checks the privileges of a call; before the call runs, removes entries whose removal
//!    is pending.
//! 8. `memory`: entries of memory caches.
//! 9. `expiry`: sweeps.
//! 10. `entries`: the only module that chooses between table and memory; `limit`: rate limits on top of it.
//! 11. `definition`: creating and changing caches.
//! 12. `fetch`: loading.
//! 13. `distribute`: caches over the nodes of Citus.
//! 14. `observer`: the steps of a commit.

pub mod catalog;
pub mod commit;
pub mod definition;
pub mod distribute;
pub mod entries;
pub mod expiry;
pub mod fetch;
pub mod lease;
pub mod limit;
pub mod memory;
pub mod model;
pub mod observer;
pub mod open;
pub mod table;
pub mod tier;
