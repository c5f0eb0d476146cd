//! Entries of memory caches, which the hot tier alone holds.

pub mod handle;
pub mod ops;
pub mod pages;
pub mod raw;
mod window;
