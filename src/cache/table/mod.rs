//! Reads and changes the rows of table caches, directly or through saved plans, and their copies in the hot tier.

pub mod access_path;
pub mod change;
pub mod copies;
pub mod direct;
pub mod entry_count;
pub mod remove_many;
pub mod replace_expired;
pub mod row;
pub mod row_ops;
pub mod verify;
pub mod versions;
