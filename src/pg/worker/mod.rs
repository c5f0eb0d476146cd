//! Background workers, and commands that only they may run.

pub mod as_role;
pub mod background;
pub mod connect;
pub mod vacuum;
