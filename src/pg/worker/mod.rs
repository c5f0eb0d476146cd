//! Starts and connects the background workers, and runs their transactions and VACUUM.

pub mod as_role;
pub mod background;
pub mod connect;
pub mod vacuum_table;
