//! Hides the differences between Postgres versions: a function or type that differs has one name here, in a file for
//! its subject. No file outside this folder depends on the version.

pub mod auth_files;
mod executor;
mod expressions;
#[allow(dead_code, reason = "has the structures of every version")]
pub mod hba_layout;
mod indexes;
mod locks;
mod partitions;
mod planner;
mod rights;
mod signals;
mod table_am;
mod tables;
mod waits;

pub use executor::on_statements;
pub use expressions::{expand_generated, expression_tree_walker, restriction};
pub use indexes::{
    UpdateIndexes, enter_inserted, enter_updated, enters_indexes, index_beginscan, inserted_by,
    stays_in_page,
};
pub use locks::{ADDIN_SHMEM_INIT_LOCK, has_lock, has_recovered_holder, oldest_in_log, try_lock};
pub use partitions::{PartitionKey, partition_key};
pub use planner::{Jumble, Planning, on_each_relation, on_planning};
pub use rights::{may_connect, may_use_schema, owns_relation};
pub use signals::{fix_setting, on_signal, proc_exit};
pub use table_am::Access;
pub use tables::{
    enable_always, has_generated, has_new_file, is_virtual, primary_key_index, truncate,
};
pub use waits::{
    RESP_WAIT_EVENT, idle_wait_event, request_wait_event, resp_wait_event, wait_event,
};

/// Whether this version has infinite intervals.
pub const HAS_ENDLESS_INTERVALS: bool = !cfg!(any(feature = "pg15", feature = "pg16"));
