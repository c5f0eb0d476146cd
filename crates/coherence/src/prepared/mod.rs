//! The third model: PREPARE TRANSACTION, and marks that outlive the session that set them.
//!
//! A transaction marks its changes and is prepared, and its session continues with other work. Another session commits
//! the transaction or rolls it back, perhaps after a restart, without running any of pgcache's callbacks for it. So the
//! marks belong to a record in shared memory, and the first process that finds the transaction decided undoes them
//! ("lowers the record").
//!
//! Two keys share a stripe: the prepared transaction writes key 0, and an ordinary transaction writes key 1. Entries
//! that depend on key 0 are in a table (`dependent`) and in a memory cache (`memory`). The promises: **in every state
//! each valid copy is the visible row; when all actors have ended, each entry that depends on a row is gone or made
//! from the row**. In addition, no mark, fence or slot remains, and no mark is undone twice.
//!
//! # The rules
//!
//! | rule | clause |
//! |---|---|
//! | the marks pass to a record, and outlive PREPARE | `MarksStand`, `FenceStands` |
//! | if the record has no room, the cache's `pending_writers` replaces the marks | `OverflowStands` |
//! | a transaction is decided once it is no longer in progress; the commit log does not show this, because it is written before other sessions see the rows; nor does the list of prepared transactions, because a transaction that is just being prepared is not listed yet | `ChecksProgressNotLog`, `ChecksProgressNotList` |
//! | one process undoes a record's marks; no other process does so again, nor does the preparing session when it aborts | `LoweringClaims`, `AbortClaims` |
//! | leases are voided before a fence is removed | `VoidBeforeFence` |
//! | the slot of a cache that a prepared transaction has dropped is freed when the transaction has committed and its record is lowered | `DropFreesSlot` |
//! | a reader that has lowered a mark takes a new token, and then a new snapshot | `SnapshotAfterQuestion` |
//! | while a mark exists, no lease is granted, and nothing is stored without a lease | `NoLeaseWhilePending`, `NoStoreWhilePending` |
//! | after a restart nothing is filled, leased or stored in a cache that a recovered transaction has locked | `RestartSuspends` |
//!
//! In this model a client's lease can be granted while a mark exists, and is voided only when the mark is removed. The
//! server has a special state for leases that were won while a writer pends, so on the server `VoidBeforeFence` is a
//! second safeguard. In a cache that is suspended since a restart, a client's lease must be void from the start,
//! because no later step voids it; the model found this rule.
//!
//! Each of these is one atomic step: a section (code under one partition lock), the change of one word of a slot,
//! taking a snapshot, the check whether a transaction is in progress, and each step of COMMIT PREPARED (commit log,
//! visible, locks and list).

mod lowering;
mod model;
mod readers;
mod transactions;

pub use model::{Actor, Change, Clause, FetcherKind, Model, Violation, all};
