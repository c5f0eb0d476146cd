//! An entry: a value and its deadline.

use super::deadline;
use crate::pg::value::convert;
use crate::pg::value::stored::Stored;

pub use crate::pg::value::entry::Entry;

impl Entry {
    /// Whether its deadline is still to come, by the wall clock.
    pub fn is_live(&self) -> bool {
        deadline::is_live(self.deadline)
    }

    /// Whether it has this value, as `=` of the type says; None is a negative entry's.
    pub fn has_value(&self, value: Option<Stored>) -> bool {
        match (self.value, value) {
            (None, None) => true,
            (Some(own), Some(other)) => convert::equal(own, other),
            _ => false,
        }
    }
}

/// Whether a look counts in the figures. A call counts one read, by its first look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Counted,
    Uncounted,
}
