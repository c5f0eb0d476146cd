//! The processes of the background workers: how they start, connect and run transactions, and the VACUUM that they
//! run.

pub mod as_role;
pub mod background;
pub mod connect;
pub mod vacuum_table;
