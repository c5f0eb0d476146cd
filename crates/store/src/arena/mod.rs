//! Memory for entries: pages, the pool of free ones, and runs of granules.
//!
//! From the bottom up: `bitmap` finds holes in a word, `page_table` has a word for each page,
//! `pool` has the free pages, `runs` cuts the pages of a partition, and `placement` finds memory
//! for a whole entry.

pub mod bitmap;
pub mod page_table;
pub mod placement;
pub mod pool;
pub mod runs;
