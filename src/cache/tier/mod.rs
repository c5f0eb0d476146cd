//! The hot tier as caches use it: slots, entries in and out, walks over all of them.

pub mod io;
pub mod slots;
pub mod walk;
