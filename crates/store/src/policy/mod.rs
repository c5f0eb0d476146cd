//! The eviction policy: S3-FIFO over the partitions, and all code that makes room for a write.
//!
//! From the bottom up: `queue` holds the lists, `admission` chooses the queue of a new entry, `victim` chooses the
//! partition and queue that give the next entry, `eviction` chooses and removes entries, `share` enforces the bounds
//! and reserves of caches, `compact` moves runs out of sparse pages, and `room` uses all of these to make room for a
//! write.

pub mod admission;
pub mod compact;
pub mod eviction;
pub mod queue;
pub mod room;
pub mod share;
pub mod victim;
