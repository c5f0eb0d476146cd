//! The fourth model: client-side caching. Redis clients keep entries of a table cache, and the server invalidates them.
//!
//! A writer changes two rows in a transaction, and records the changes in a ring that a network process reads. The
//! network process notes the keys that its client reads, either from a copy in the hot tier or through an executor, and
//! sends the changes of these keys to the client as invalidations. The client keeps each value until its key is
//! invalidated. Messages and replies reach the client in order, but after a delay. In the code, a record in the ring
//! and an invalidation are both an `Invalidation`, the network process is the front, and the executor is the back.
//!
//! The promises:
//! * when all actors have ended, the values that the client keeps equal the rows;
//! * when the client has the reply to a request, it also has every change that was acknowledged before it sent the
//!   request;
//! * the client never shows an old value beside a new value of the same transaction;
//! * a change that no session can see causes no invalidation.
//!
//! # The rules
//!
//! | rule | clause |
//! |---|---|
//! | the network process registers for the cache's changes, and notes the key, before it reads a copy or offloads the read | `RegistersBeforeRead`, `NotedBeforeRead` |
//! | a writer checks for registered readers after its commit is visible, not when it writes | `ChecksAfterVisible` |
//! | it also records its changes only after that, because a client that reads in between would keep the old row | `RecordedAfterVisible` |
//! | it records them before copies of the new rows can be made, and before its own client gets the acknowledgement | `RecordedBeforeUnmark`, `RecordedBeforeAck` |
//! | an executor waits for each writer that is visible in its snapshot and has not recorded its changes yet | `BackWaits` |
//! | the network process reads the ring between a read and its reply | `DrainedBeforeReply` |
//! | an invalidation that is sent during a read is sent again after the read's reply | `SentAgain` |
//! | a network process whose unread records were overwritten treats every entry as changed | `LostInvalidatesAll` |
//! | a rollback records nothing, nor does a rollback to a savepoint | `RollbackSilent`, `SavepointSilent` |
//! | undoing the prepared record of a committed transaction invalidates everything; COMMIT PREPARED returns only after that, whichever process undoes the record | `RecordInvalidates`, `FinisherWaits` |
//! | while a cache is unverified after a restart, because a prepared transaction may have changed it, each of its keys is invalidated right after the reply to a read | `UnprovenOwes` |
//!
//! Atomic steps: marking both keys, which share a stripe; unmarking both; making a commit visible; appending a record
//! to the ring; taking a snapshot; reading a copy. The network process reads the ring in one step, because no other
//! process observes it.

mod effects;
mod front;
mod model;
mod writers;

pub use model::{Actor, Change, Clause, Model, Request, Violation, all};
