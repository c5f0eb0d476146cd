//! Who stays: S3-FIFO over the partitions, and the room that evictions and moves make.
//!
//! From the ground up: `queue` holds the lists, `admission` says where an entry begins, `victim`
//! whose turn it is; `eviction` judges and removes; `share` keeps to the bounds and reserves of caches; `compact` moves runs out of sparse pages;
//! `room` makes both serve a write.

pub mod admission;
pub mod compact;
pub mod eviction;
pub mod queue;
pub mod room;
pub mod share;
pub mod victim;
