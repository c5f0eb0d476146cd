//! All tests with more than one session, or more than one life of the server. One program, one file
//! a theme; see the crate's description for why.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test says what is wrong by a panic"
)]

mod attached;
mod attached_hidden;
mod attached_life;
mod attached_refused;
mod attached_software;
mod backtrace;
mod citus;
mod clock;
mod coherence_apply;
mod coherence_commit;
mod coherence_limits;
mod coherence_rules;
mod coherence_sessions;
mod coherence_statements;
mod coherence_storm;
mod coherence_storm_sources;
mod coherence_windows;
mod coherence_writer;
mod concurrency;
mod copied;
mod counters;
mod crash_tier;
mod cron;
mod definitions;
mod delete_wins;
mod depend;
mod depend_settings;
mod depend_triggers;
mod differential;
mod distributed;
mod dump;
mod expiry;
mod extension_folder;
mod fair_caches;
mod faults;
mod fetch;
mod fetch_commit;
mod fetch_locks;
mod fetch_truth;
mod fetch_windows;
mod fuzz;
mod hidden;
mod hidden_cursors;
mod hostile_role;
mod last_moment;
mod leaks;
mod leases;
mod life;
mod locks_and_rights;
mod lookalikes;
mod marks_at_limits;
mod memory_caches;
mod memory_definitions;
mod messages;
mod oid_reuse;
mod older_extension;
mod out_of_memory;
mod pages;
mod partition_locks;
mod partitioned;
mod pooling;
mod postgres_19;
mod prepared;
mod prepared_restart;
mod privilege_matrix;
mod promotion;
mod readme;
mod reference;
mod resp_always_answered;
mod resp_attacks;
mod resp_auth;
mod resp_channels;
mod resp_commands;
mod resp_connections;
mod resp_copy;
mod resp_differential;
mod resp_exec_bounds;
mod resp_exec_tables;
mod resp_faults;
mod resp_flush_all;
mod resp_hot;
mod resp_layout;
mod resp_long;
mod resp_memory;
mod resp_patterns;
mod resp_publish;
mod resp_replies;
mod resp_scripts;
mod resp_slow;
mod resp_spellings;
mod resp_storm;
mod resp_table_batches;
mod resp_table_faults;
mod resp_table_roles;
mod resp_table_standby;
mod resp_tables;
mod resp_tls;
mod resp_tracking;
mod resp_tracking_kept;
mod resp_tracking_tables;
mod resp_tracking_tables_storm;
mod resp_views;
mod resp_workers;
mod resp_workers_together;
mod restart;
mod rights_taken_away;
mod role_classes;
mod security;
mod set_keeps;
mod several_servers;
mod signatures;
mod small_things;
mod soak;
mod standby;
mod standby_slots;
mod storage;
mod table_path;
mod upgrade;
mod user_triggers;
mod visibility;
mod watch;
mod worker;
mod worker_fairness;
mod worker_hostile;
mod worker_space;
