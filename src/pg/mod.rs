//! Everything that touches Postgres' C interface: all unsafe code, every version difference.
//!
//! What an entry means, and when it counts, is said in the layer above (`cache`).

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
