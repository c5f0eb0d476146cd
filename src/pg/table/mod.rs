//! Direct access to tables: reads and writes rows by key without Postgres' executor, if the table is simple enough that
//! the result is the same, and truncates tables.

pub mod dead_bytes;
pub mod index_read;
pub mod probe;
pub mod routing;
pub mod row_positions;
pub mod shape;
pub mod storage;
pub mod target;
pub mod truncate;
pub mod write;
