//! The columns of a cache's row that are ours.

use super::stored::Stored;
use crate::pg::session::clock::Timestamp;

/// An entry of a cache: what is read, and what is to be written.
#[derive(Clone, Copy)]
pub struct Entry {
    /// None: a negative entry.
    pub value: Option<Stored>,
    /// None: it never expires.
    pub deadline: Option<Timestamp>,
}
