//! All tests with more than one session, or more than one life of the server. One program, one file
//! a theme; see the crate's description for why.

mod coherence_apply;
mod coherence_commit;
mod coherence_limits;
mod coherence_rules;
mod coherence_sessions;
mod coherence_statements;
mod coherence_storm;
mod concurrency;
mod crash_tier;
mod cron;
mod depend;
mod dump;
mod expiry;
mod faults;
mod fetch;
mod fuzz;
mod intruder;
mod leaks;
mod leases;
mod life;
mod memory_caches;
mod memory_definitions;
mod prepared;
mod privilege_matrix;
mod readme;
mod restart;
mod security;
mod soak;
mod standby;
mod table_path;
mod visibility;
mod watch;
mod worker;
mod worker_space;
