//! TODO

pub mod entry_counts;
pub mod pending_batch;
pub mod permission_cache;
pub mod request;
pub mod role_names;
pub mod server_privileges;
