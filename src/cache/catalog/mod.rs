//! The session's knowledge of its caches. Opens no cache: see `open`.

mod cache;
mod loading;
mod own_slot;
mod plans;
pub mod reading;
pub mod registry;
pub mod shard_metadata;
pub mod sources;
