//! The hot tier as caches use it: slots, hashed keys, reading and writing entries, walks over all of them.

pub mod hashed_key;
pub mod io;
pub mod shares;
pub mod slots;
pub mod walk;
