//! A second model, of leases: what `cache_fetch` and `cache_set_leased` store while the source changes.
//!
//! A fetch reads the source, and stores what it has read in a transaction of its own: both take time, and
//! whoever changes the source meanwhile must not find that the old value stays. The model plays one key, a
//! few writers of its source (`cache_depend` removes the entry's row with their commit) and a few fetchers.
//! The promise: **when all have ended, the entry is gone or is what the source holds**. Besides, no mark and no
//! lease is left behind, and nobody stands still for good.
//!
//! # The rules
//!
//! | who | does |
//! |---|---|
//! | writer, before its commit | raises `pending_writers` and `ver`, of the key's stripe, the whole cache or the global pair; then voids leases; **then** removes the row, and waits for whoever has written one that it cannot see |
//! | writer, after it | raises `ver`, lowers `pending_writers`, voids leases |
//! | fetcher | is granted a lease only while nothing pends, under the partition's lock; reads the source with a newer snapshot; writes the row; **then** asks whether the lease was voided, and takes the row back if so |
//! | fetcher without a lease | the same with a token (all `ver`, nothing pending) in the place of the lease |
//! | fetcher under REPEATABLE READ | stores only if nothing has been committed since its snapshot, asked when it has the lease |
//!
//! Why it holds: writer and fetcher each announce first (mark; row) and look afterwards (rows; lease or token).
//! So one of the two sees the other. Who sees nothing pending before it reads reads what is committed.
//!
//! Without shared memory the writer takes the key's lease itself, as a lock that it waits for: then nobody
//! loads between its removal and its visible commit. That is one lock and needs no model.
//!
//! Atomic steps: a section under the partition's lock, one word of a slot or of the global pair, a snapshot, the
//! writing of a row, the removal of a row, a commit's becoming visible.

mod fetcher;
mod model;
mod moves;
mod search;
mod step;
mod writer;

pub use crate::wide::{counterexample, explore};
pub use model::{Actor, Clause, FetcherKind, MarkScope, Model, Violation, all};
