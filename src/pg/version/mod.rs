//! Every difference between the Postgres versions, under one name each; a file for each subject.

mod auth_files;
mod expressions;
mod locks;
mod partitions;
mod process;
mod rights;
mod rows;
mod tables;
mod waits;

pub use auth_files::with_auth_lines;
pub use expressions::{expand_generated, expression_tree_walker, restriction};
pub use locks::{
    ADDIN_SHMEM_INIT_LOCK, has_lock, has_recovered_holder, holders_in_the_way, oldest_in_log,
    try_lock,
};
pub use partitions::{PartitionKey, partition_key};
pub use process::{fix_setting, local_transaction, on_signal, proc_exit};
pub use rights::{may_connect, may_use_schema, owns_relation};
pub use rows::{
    UpdateIndexes, enter_inserted, enter_updated, enters_indexes, index_beginscan, stays_in_page,
};
pub use tables::{enable_always, has_new_file, is_virtual, primary_key_index, truncate};
pub use waits::{
    RESP_WAIT_EVENT, idle_wait_event, request_wait_event, resp_wait_event, wait_event,
};
