//! A fourth model, of client-side caching: what clients of the Redis protocol keep of a table cache, and are told.
//!
//! A writer changes two rows in a transaction, and tells of them in a ring that a front process reads. The front
//! notes what its client reads, from a copy in the tier or through a back process, and passes on what it is told.
//! The client keeps what it has read until it is told that it has changed. Messages and replies come to it in one
//! order, but what the front sends is not there at once.
//!
//! The promises: **when all have ended, what the client keeps is what the rows are; what was acknowledged before the
//! client asked for something is known to it with the reply; it never shows an old value beside a new one of the
//! same transaction; and of a change that nobody can see nothing is told.**
//!
//! # The rules
//!
//! | rule | clause |
//! |---|---|
//! | the front asks for the cache's changes, and notes the key, before it looks at a copy or hands the read to a back | `AsksBeforeRead`, `NotedBeforeRead` |
//! | a writer looks whether anybody asks after its commit is visible, not when it writes | `LooksAfterVisible` |
//! | it tells after that, too: who reads in between keeps the old row | `ToldAfterVisible` |
//! | it tells before copies of the new rows can be made, and before its client is told that it has committed | `ToldBeforeUnmark`, `ToldBeforeAck` |
//! | a back waits for whoever is visible in its snapshot and has not told yet | `BackWaits` |
//! | the front reads the ring between a read and its reply | `DrainedBeforeReply` |
//! | what is told while a read is under way is told again after its reply | `ToldAgain` |
//! | who is overtaken in the ring takes everything for changed | `LostTellsAll` |
//! | a rollback is not told, nor what was rolled back to a savepoint | `RollbackSilent`, `SavepointSilent` |
//! | the record of a prepared transaction tells everything when it is lowered as committed, and COMMIT PREPARED returns after that, whoever lowers it | `RecordTells`, `FinisherWaits` |
//! | as long as a cache is unproven since a restart, its reads are told right after their replies | `UnprovenOwes` |
//!
//! Atomic steps: marks and unmarks of the two keys (they share a stripe), a commit's becoming visible, a record in
//! the ring, a snapshot, a look at a copy, the reading of the ring by the front, which nobody else sees.

mod effects;
mod front;
mod model;
mod writers;

pub use model::{Actor, Ask, Change, Clause, Model, Violation, all};
