//! The layer that touches Postgres' C interface: all unsafe code, every version difference.
//!
//! The layer above (`cache`) defines the meaning of an entry and when it counts.

pub mod catalog;
pub mod encoding;
pub mod events;
pub mod hooks;
pub mod memory;
pub mod resp;
pub mod session;
pub mod shmem;
pub mod spi;
pub mod table;
pub mod value;
pub mod version;
pub mod worker;
