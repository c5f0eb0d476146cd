//! An entry: a value and its deadline.

use super::deadline::{self, Deadline};
use crate::pg::value::stored::Stored;

/// An entry as it is stored. A value of None is a negative entry.
#[derive(Clone, Copy)]
pub struct Entry {
    pub value: Option<Stored>,
    pub deadline: Deadline,
}

impl Entry {
    /// Whether its deadline is still to come, by the wall clock.
    pub fn is_live(&self) -> bool {
        deadline::is_live(self.deadline)
    }
}

/// Whether a look counts in the figures. A call counts one read, by its first look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Counted,
    Uncounted,
}
