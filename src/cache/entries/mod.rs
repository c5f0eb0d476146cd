//! Reads and changes the entries of a cache, whether the entries are in a table or in memory.
//!
//! SQL functions and Redis commands use the interface [`store::Store`], which has two implementations, [`memory`] and
//! [`table`]. Reads of SQL functions take a shorter path ([`sql_read`]): they copy an entry from the tier straight into
//! a datum.

pub mod buffers;
mod failed;
mod memory;
pub mod sql_read;
pub mod sql_write;
pub mod store;
pub mod table;
mod touch_after;

pub use sql_read::{Entry, Look, count, count_read, find, get, get_many, get_or_stale, keys, scan};
pub use sql_write::{
    add, delete, delete_if, delete_many, delete_prefix, get_to_touch, increment,
    increment_existing, persist, replace, replace_if, set, set_deadline, set_many, take, touch,
};
