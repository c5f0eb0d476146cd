//! Background workers.

pub mod background;
