//! What the session knows of its caches. Nothing here opens one: see `open`.

mod cache;
mod loading;
mod own_slot;
mod plans;
pub mod reading;
pub mod registry;
pub mod shard_metadata;
pub mod sources;
