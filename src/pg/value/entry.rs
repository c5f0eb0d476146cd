//! An entry as one row of a cache's table: its value and its deadline.

use super::stored::Stored;
use crate::pg::session::clock::Timestamp;

/// An entry of a cache, as it is read or written.
#[derive(Clone, Copy)]
pub struct Entry {
    /// None: a negative entry.
    pub value: Option<Stored>,
    /// None: the entry never expires.
    pub deadline: Option<Timestamp>,
}
