//! Who computes an entry, and whether what was computed may be stored.

pub mod leases;
pub mod load_token;
