//! Reads and changes entries of memory caches, which exist only in the hot tier.

pub mod handle;
pub mod ops;
pub mod pages;
pub mod raw;
pub mod saved;
mod window;
