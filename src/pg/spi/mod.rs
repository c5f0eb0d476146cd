//! Runs SQL statements through Postgres' server programming interface (SPI): saved plans, loaders and key expressions.

pub mod expression;
pub mod loader;
pub mod output;
pub mod plan;
pub mod spi_connection;
