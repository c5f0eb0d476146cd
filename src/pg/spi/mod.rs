//! Statements that run through Postgres' server programming interface.

pub mod connection;
pub mod expression;
pub mod loader;
pub mod loader_context;
pub mod output;
pub mod plan;
