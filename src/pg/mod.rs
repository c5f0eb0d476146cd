//! Everything that touches Postgres' C interface: all unsafe code, every version difference.
//!
//! Nothing here knows what a cache is; the layer above (`cache`) says that.

pub mod catalog;
pub mod encoding;
pub mod events;
pub mod hooks;
pub mod memory;
pub mod session;
pub mod shmem;
pub mod spi;
pub mod table;
pub mod value;
pub mod version;
pub mod worker;
