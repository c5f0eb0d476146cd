//! What the session knows of its caches. Nothing here opens one: see `open`.

pub mod reading;
pub mod registry;
pub mod sources;
