//! [`Entry`]: a value and its deadline; also [`Look`] and [`Page`], the arguments of reads. In the tier, `entry.rs` of
//! the store crate holds value and deadline as bytes.

use super::deadline;
use crate::pg::value::convert;
use crate::pg::value::datum::Text;
use crate::pg::value::stored::Stored;

pub use crate::pg::value::stored::Entry;

impl Entry {
    /// Returns whether the deadline of the entry has not passed, by the wall clock.
    pub fn is_live(&self) -> bool {
        deadline::is_live(self.deadline)
    }

    /// Returns whether the entry has this value, by the type's `=`. The value None equals a negative entry.
    pub fn has_value(&self, value: Option<Stored>) -> bool {
        match (self.value, value) {
            (None, None) => true,
            (Some(own), Some(other)) => convert::equal(own, other),
            _ => false,
        }
    }
}

/// Whether a lookup counts as a read. A call counts one read, for its first lookup.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Counted,
    Uncounted,
}

/// The entries that a call of `cache_scan` or `cache_keys` requests: live entries in key order, at most `max_rows`,
/// which begin with `prefix` and come after `after`. An empty `after` counts as none.
pub struct Page {
    pub prefix: Text,
    pub after: Option<Text>,
    pub max_rows: usize,
}
