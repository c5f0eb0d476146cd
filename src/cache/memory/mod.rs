//! Reads and changes entries of memory caches, which exist only in the hot tier.

pub mod handle;
pub mod ordered_pages;
pub mod raw;
pub mod saved;
pub mod tier_ops;
mod window;
