//! A third model, of PREPARE TRANSACTION: marks that outlive the session which has set them.
//!
//! A transaction marks what it has changed, is prepared, and its session goes on to other things. Some other
//! session commits it or rolls it back, perhaps after a restart, and runs none of our callbacks for it. So its marks
//! belong to a record in shared memory, and whoever meets one lowers it once the transaction is decided.
//!
//! Two keys share a stripe: key 0 is what the prepared transaction writes, key 1 what an ordinary one does. What
//! depends on key 0 lies in a table (`dependent`) and in a memory cache (`memory`). The promises: **in no state is a
//! valid copy anything but the visible row; when all have ended, what depends on a row is gone or made of it**. And
//! no mark, fence or slot is left behind, and none is undone twice.
//!
//! # The rules
//!
//! | rule | clause |
//! |---|---|
//! | the marks pass to a record, and stand | `MarksStand`, `FenceStands` |
//! | where the record has no room, the whole cache's `pending_writers` stands instead | `OverflowStands` |
//! | decided is what is no longer in progress: not what the commit log says, which is written before others see the rows; not what is missing in the list of prepared transactions, in which it is not yet while it is being prepared | `AsksProgressNotLog`, `AsksProgressNotList` |
//! | one process lowers a record, and nobody undoes what it has undone, its own abort included | `LoweringClaims`, `AbortClaims` |
//! | a lease is void before a fence falls | `VoidBeforeFence` |
//! | the slot of what a prepared transaction has dropped goes when it is lowered as committed | `DropFreesSlot` |
//! | who has lowered a mark takes a new token, and then a new snapshot | `SnapshotAfterQuestion` |
//! | no lease, and no store without one, while a mark stands | `NoLeaseWhilePending`, `NoStoreWhilePending` |
//! | after a restart nothing is filled, leased or stored of a cache that a recovered transaction has locked | `RestartSuspends` |
//!
//! While a mark stands a client's lease is granted here, and void only when the mark is lowered. The server has a
//! state for those that were won while something pends, which makes `VoidBeforeFence` a second lock on the same
//! door. Of a cache that is suspended since a restart a client's lease must be void from the start, as nothing
//! voids it later: the model showed that.
//!
//! Atomic steps: a section under the partition's lock, one word of a slot, a snapshot, the question whether a
//! transaction is in progress, each of the steps of COMMIT PREPARED (commit log, visible, locks and list).

mod lowering;
mod model;
mod readers;
mod writers;

pub use model::{Actor, Change, Clause, FetcherKind, Model, Violation, all};
