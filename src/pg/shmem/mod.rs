//! The structures in shared memory: the hot tier with its slots, marks, leases, records of prepared transactions and
//! ring of changes, and the state of the background workers.

pub mod cache_id;
pub mod change_counts;
pub mod entry_size;
pub mod key_marks;
pub mod lease;
pub mod mapping;
pub mod pending_invalidations;
pub mod prepared;
pub mod restart;
pub mod ring;
pub mod role_counts;
pub mod slot;
pub mod stores;
pub mod sweep_state;
pub mod tier;
pub mod worker_state;
pub mod zeroed;
