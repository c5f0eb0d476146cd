//! [`Page`]: the range of entries that a call of `cache_scan` or `cache_keys` requests.

use crate::pg::value::datum::Text;

/// Live entries in key order: at most `max_rows`, which begin with `prefix` and come after `after`. An empty `after`
/// counts as none.
pub struct Page {
    pub prefix: Text,
    pub after: Option<Text>,
    pub max_rows: usize,
}
