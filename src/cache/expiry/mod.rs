//! Sweeps of expired rows and of rows beyond `max_entries`, and the decision when to VACUUM.

mod blocks;
pub mod cron;
pub mod on_demand;
pub mod pass;
pub mod sweep;
pub mod sweepable;
pub mod trim;
pub mod upkeep;
pub mod vacuum_need;
