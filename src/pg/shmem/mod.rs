//! Structures in shared memory: the hot tier, its slots, marks and leases, and the worker's state.

pub mod cache_id;
pub mod changes;
pub mod entry_size;
pub mod lease;
pub mod mapping;
pub mod marks;
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
