//! A page of entries: what `cache_scan` and `cache_keys` are asked for.

use crate::pg::value::datum::Text;

/// Live entries in the order of their keys: at most `max_rows` of those that begin with `prefix` and come
/// after `after`. An `after` of no bytes is none.
pub struct Page {
    pub prefix: Text,
    pub after: Option<Text>,
    pub max_rows: usize,
}
