//! The second model: leases and watches, which decide whether `cache_fetch` and `cache_set_leased` may store a value
//! while its source changes.
//!
//! A fetch reads the source, and stores the value in a separate transaction. Both take time, and a change of the source
//! before the store must not leave the old value in the cache. The model has one key, a few writers of its source
//! (`cache_depend` removes the entry's row with their commit) and a few fetchers. The promise: **when all actors have
//! ended, the entry is gone or equals the source**. In addition, no mark and no lease remains, and no actor waits
//! forever.
//!
//! # The rules
//!
//! | actor | steps |
//! |---|---|
//! | writer, before its commit | marks its key, or raises the cache's `pending_writers`, or takes the cache's lock if there is no slot; then voids leases and watches; **then** removes the row, and waits for transactions that have written a row which it cannot see |
//! | writer, after its commit | unmarks, voids leases and watches, releases the lock |
//! | fetcher | gets a lease, under the partition's lock, only while no writer pends; checks the cache's lock **after** that; reads the source with a newer snapshot; announces that it stores, and writes the row; **then** checks whether the lease was voided, and if it was, removes the row again |
//! | fetcher without a lease | does the same with a watch instead of the lease; any number of fetchers may watch a key |
//! | fetcher under REPEATABLE READ | stores only if nothing has been committed since its snapshot, checked when it has the lease |
//! | delete by hand that finds no row | sets its mark and voids; **then** checks for the row again, and waits for a row that it cannot see, unless no store was open at its first check and none has begun since |
//!
//! The rules work because writer and fetcher each first announce themselves (the writer with a mark, the fetcher with a
//! row) and then check (the writer for rows, the fetcher for its lease or watch). So the writer sees the row, or the
//! fetcher sees that its lease or watch was voided. A fetcher that sees no pending writer before it reads, reads the
//! committed source.
//!
//! A second promise: **only a writer of its own key or cache keeps a fetcher from storing**. The model runs writers
//! of another cache, with a key on the same stripe, against a single fetcher, which must never be refused.
//!
//! Without shared memory the writer takes the key's lease itself, as a lock that it waits for. So no fetcher loads
//! between the writer's removal of the row and its visible commit. This rule needs no model, because it is a single
//! lock.
//!
//! Each of these is one atomic step: a section (code under one partition lock), the change of one word of a slot,
//! acquiring a Postgres lock, taking a snapshot, writing a row, removing a row, and the event that makes a commit
//! visible.

mod deleter;
mod fetcher;
mod model;
mod source_writer;
mod unmark_and_void;

pub use model::{Actor, Clause, FetcherKind, MarkScope, Model, Violation, all};
