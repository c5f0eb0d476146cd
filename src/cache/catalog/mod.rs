//! The cache definitions that this session has loaded, with their plans, slots and Citus shards. This module takes no
//! lock on a cache and checks no privilege: `open` does both.

mod cache;
mod loading;
mod own_slot;
mod plans;
pub mod reading;
pub mod registry;
pub mod shard_metadata;
pub mod sources;
