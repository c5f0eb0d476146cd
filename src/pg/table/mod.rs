//! Rows of a table, read and written past the executor where the table is plain enough for it.

pub mod dead_bytes;
pub mod probe;
pub mod read;
pub mod routing;
pub mod search;
pub mod shape;
pub mod storage;
pub mod target;
pub mod truncate;
pub mod write;
