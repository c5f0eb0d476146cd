//! Reads and changes entries of memory caches, which exist in the hot tier only.

pub mod handle;
pub mod ops;
pub mod pages;
pub mod raw;
pub mod saved;
mod window;
