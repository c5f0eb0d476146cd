//! The operations of caches on the hot tier: slots, shares of its memory, hashed keys, copies of single entries, and
//! walks over all entries.

pub mod hashed_key;
pub mod io;
pub mod slot_shares;
pub mod slots;
pub mod walk;
