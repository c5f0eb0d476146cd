//! Implements `cache_fetch` and `cache_lease`, and runs loaders.

pub mod cache_fetch;
pub mod cache_lease;
pub mod loaders;
