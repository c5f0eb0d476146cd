//! Caches over the nodes of Citus: which calls go where.
//!
//! Guards three rules. A call is answered by the node that has its key, on the shard's own table, which is a cache of
//! its own; nothing is read or written of the empty table that the caller names. Nobody reads or writes a shard
//! without Citus' lock on where it is, taken on the node on which the call was made. And what goes to another node
//! goes by a query of Citus', in the caller's transaction, as the caller.

pub mod answer;
pub mod ask;
pub mod define;
mod loads;
mod one;
pub mod request;
pub mod route;
mod several;
pub mod two_phases;
