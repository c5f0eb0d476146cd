//! Statements that run through Postgres' server programming interface.

pub mod expression;
pub mod loader;
pub mod notify;
pub mod plan;
