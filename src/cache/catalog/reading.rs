//! [`Reading`]: a cache that is open for reading, with its lock.

use std::rc::Rc;

use super::registry::{Cache, Storage};
use crate::pg::session::{self, lock};

/// A cache that is open for reading. Dropping the value releases the lock, unless the transaction must keep it.
pub struct Reading {
    pub cache: Rc<Cache>,
    pub _lock: lock::Shared,
}

impl std::ops::Deref for Reading {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

impl Reading {
    /// Returns whether the entries are out of reach: on a standby, the content of an unlogged table does not exist.
    pub fn is_out_of_reach(&self) -> bool {
        self.cache.storage == Storage::Unlogged && session::in_recovery()
    }
}
