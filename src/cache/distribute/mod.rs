//! Caches distributed over the nodes of Citus: routes their calls.
//!
//! Guards three rules. A call is answered by the node that has its key, on the shard's own table, which is a cache of
//! its own; the empty table that the caller names is never read or written. No session reads or writes a shard
//! without Citus' lock on its placement, taken on the node on which the call was made. And a call to another node is
//! a query of Citus, in the caller's transaction, as the caller.

pub mod answer;
pub mod ask;
pub mod define;
pub mod multi_shard;
pub mod remote_fetch;
pub mod request;
pub mod route;
pub mod single_shard;
pub mod two_phases;
