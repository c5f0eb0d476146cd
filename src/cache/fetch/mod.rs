//! `cache_fetch`, `cache_lease` and the loaders that they run.

pub mod cache_fetch;
pub mod cache_lease;
pub mod loaders;
