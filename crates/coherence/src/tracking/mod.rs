//! The fourth model, of client-side caching: the entries of a table cache that clients of the Redis protocol keep, and
//! their invalidation.
//!
//! A writer changes two rows in a transaction, and records the changes in a ring that a network process reads. The
//! network process notes the keys that its client reads, from a copy in the tier or through an executor, and passes
//! the changes of these keys on as invalidations. The client keeps each value until the invalidation of its key.
//! Messages and replies reach the client in one order, but after a delay. In the code a record in the ring and an
//! invalidation are `Told`; the network process is the front and the executor the back.
//!
//! The promises: **when all have ended, the values that the client keeps are the rows; a change that was acknowledged
//! before the client sent a request is known to the client with the reply; the client never shows an old value beside
//! a new one of the same transaction; and a change that no session can see invalidates nothing.**
//!
//! # The rules
//!
//! | rule | clause |
//! |---|---|
//! | the network process registers for the cache's changes, and notes the key, before it looks at a copy or offloads the read | `AsksBeforeRead`, `NotedBeforeRead` |
//! | a writer checks for registered readers after its commit is visible, not when it writes | `LooksAfterVisible` |
//! | it records its changes after that, too, because a client that reads in between keeps the old row | `ToldAfterVisible` |
//! | it records them before copies of the new rows can be made, and before its own client gets the acknowledgement | `ToldBeforeUnmark`, `ToldBeforeAck` |
//! | an executor waits for each writer that is visible in its snapshot and has not recorded its changes yet | `BackWaits` |
//! | the network process reads the ring between a read and its reply | `DrainedBeforeReply` |
//! | an invalidation that is sent while a read is under way is sent again after its reply | `ToldAgain` |
//! | a network process that is overtaken in the ring counts everything as changed | `LostTellsAll` |
//! | a rollback records nothing, nor does a rollback to a savepoint | `RollbackSilent`, `SavepointSilent` |
//! | a prepared transaction's record invalidates everything when it is lowered as committed, and COMMIT PREPARED returns after that, whichever process lowers it | `RecordTells`, `FinisherWaits` |
//! | while a cache is unproven since a restart, its keys are invalidated right after the replies to their reads | `UnprovenOwes` |
//!
//! Atomic steps: marks and unmarks of the two keys (they share a stripe), a commit's becoming visible, a record in the
//! ring, a snapshot, a look at a copy. The network process reads the ring in one step, because no other process
//! observes it.

mod effects;
mod front;
mod model;
mod writers;

pub use model::{Actor, Ask, Change, Clause, Model, Violation, all};
