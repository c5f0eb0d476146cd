//! Memory for entries: pages, the pool of free ones, and runs of granules.
//!
//! From the ground up: `bitmap` finds holes in a word, `page_table` holds a word for each page and
//! `pool` the free pages; `runs` cuts a partition's pages, and `placement` finds memory for a whole
//! entry.

pub mod bitmap;
pub mod page_table;
pub mod placement;
pub mod pool;
pub mod runs;
