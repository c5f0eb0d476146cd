//! Routes the calls on caches that Citus distributes over its nodes.
//!
//! The three rules:
//!
//! - The node that has the key answers a call, on the table of the shard, which is itself a cache. The table that the
//!   caller names is empty; no call reads or writes it.
//! - A session reads or writes a shard only under Citus' lock on its placement, taken on the node where the call was
//!   made; otherwise the shard could move during the call.
//! - A call to another node is a Citus query, in the caller's transaction and as the caller.

pub mod calls;
pub mod distributed_call;
pub mod distributed_ddl;
pub mod multi_shard;
pub mod remote_fetch;
pub mod route;
pub mod single_shard;
pub mod two_phases;
