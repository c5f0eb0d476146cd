//! Everything that touches Postgres' C interface: all unsafe code, every version difference.
//!
//! Nothing here knows what a cache is; the layer above (`cache`) says that.

pub mod background;
pub mod board;
pub mod clock;
mod context;
pub mod convert;
pub mod database;
pub mod datum;
pub mod dependency;
mod dependency_key;
pub mod encoding;
pub mod events;
pub mod expression;
pub mod fence;
pub mod invalidation;
pub mod lease;
pub mod loader;
pub mod lock;
mod mapping;
pub mod memory;
pub mod name;
pub mod notify;
pub mod pause;
pub mod plan;
pub mod privilege;
pub mod random;
mod raw;
pub mod relation;
pub mod reserve;
pub mod rows;
pub mod session;
pub mod storage;
pub mod subtransaction;
pub mod table_row;
pub mod table_scan;
pub mod table_search;
mod table_step;
pub mod table_target;
pub mod table_write;
pub mod tier;
pub mod transaction;
mod trigger;
mod version;
pub mod wait;
