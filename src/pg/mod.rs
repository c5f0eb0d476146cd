//! The layer that calls Postgres' C functions. It contains all unsafe code, and all differences between Postgres
//! versions.
//!
//! It does not decide what an entry means or when it is valid; the layer above (`cache`) does.

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
