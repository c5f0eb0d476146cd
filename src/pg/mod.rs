//! Everything that touches Postgres' C interface: all unsafe code, every version difference.
//!
//! Nothing here knows what a cache is; the layer above (`cache`) says that.

pub mod background;
pub mod board;
pub mod clock;
pub mod convert;
pub mod database;
pub mod datum;
pub mod events;
pub mod invalidation;
pub mod lock;
pub mod memory;
pub mod name;
pub mod pause;
pub mod plan;
pub mod privilege;
pub mod random;
pub mod relation;
pub mod reserve;
pub mod rows;
pub mod session;
pub mod storage;
pub mod tier;
pub mod transaction;
mod trigger;
mod version;
