//! An entry as one row of a cache's table: its value and its deadline.

use super::stored::Stored;
use crate::pg::session::clock::Timestamp;

/// An entry of a cache, for a read or a write.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The value; None for a negative entry.
    pub value: Option<Stored>,
    /// The deadline; None if the entry never expires.
    pub deadline: Option<Timestamp>,
}
