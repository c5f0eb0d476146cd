//! What a command acts on: a cache, and what the connection's role may do with it.

use std::rc::Rc;

use crate::cache::catalog::registry::{Cache, Storage};
use crate::pg::catalog::privilege::Privileges;

/// A cache, and a role's rights on it.
#[derive(Clone)]
pub struct Target {
    pub cache: Rc<Cache>,
    pub privileges: Privileges,
}

impl Target {
    /// Whether its entries are a table's, and copies of some of them in the tier.
    #[inline]
    pub fn is_table(&self) -> bool {
        self.cache.storage != Storage::Memory
    }
}
