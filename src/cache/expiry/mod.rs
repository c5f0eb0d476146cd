//! Removes expired rows and rows beyond a cache's limits (sweeps), and decides when a table is worth a VACUUM.

mod blocks;
pub mod cron;
pub mod on_demand;
pub mod pass;
pub mod sweep;
pub mod sweepable;
pub mod trim;
pub mod upkeep;
pub mod vacuum_need;
