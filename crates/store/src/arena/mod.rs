//! The memory for entries: pages, the pool of free pages, and runs of granules (64 bytes each) in pages.
//!
//! From the bottom up: `bitmap` finds holes in one page, `page_table` holds the state of each page, `pool` the free
//! pages, `runs` cuts the pages of a partition into runs, and `placement` finds memory for a whole entry.

pub mod bitmap;
pub mod page_table;
pub mod placement;
pub mod pool;
pub mod runs;
