//! The columns of a cache's row that pgcache reads and writes.

use super::stored::Stored;
use crate::pg::session::clock::Timestamp;

/// An entry of a cache, read or to be written.
#[derive(Clone, Copy)]
pub struct Entry {
    /// None: a negative entry.
    pub value: Option<Stored>,
    /// None: the entry never expires.
    pub deadline: Option<Timestamp>,
}
