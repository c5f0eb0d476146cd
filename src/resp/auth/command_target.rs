//! The target of a command: a cache, and the privileges of the connection's role on it. `auth::decide` finds the
//! privileges; this type only carries them.

use std::rc::Rc;

use crate::cache::catalog::registry::{Cache, Storage};
use crate::pg::catalog::privilege::Privileges;

/// A cache, and the privileges of a role on it.
#[derive(Clone)]
pub struct Target {
    pub cache: Rc<Cache>,
    pub privileges: Privileges,
}

impl Target {
    /// Returns whether the cache's entries are rows of a table, of which the hot tier holds only copies.
    #[inline]
    pub fn is_table(&self) -> bool {
        self.cache.storage != Storage::Memory
    }
}
