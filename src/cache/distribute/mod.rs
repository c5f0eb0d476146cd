//! Caches over the nodes of Citus: which calls go where.
//!
//! Guards three rules. A call is answered by the node that has its key, on the shard's own table, which is a cache of
//! its own; nothing is read or written of the empty table that the caller names. Nobody reads or writes a shard
//! without Citus' lock on where it is, taken on the node on which the call was made. And what goes to another node
//! goes by a query of Citus', in the caller's transaction, as the caller.

pub mod answer;
pub mod ask;
pub mod define;
pub mod multi_shard;
pub mod remote_fetch;
pub mod request;
pub mod route;
pub mod single_shard;
pub mod two_phases;
