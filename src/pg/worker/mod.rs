//! Background workers, and what only they may run.

pub mod as_role;
pub mod background;
pub mod connect;
pub mod vacuum;
