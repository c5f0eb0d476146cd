//! Opens one cache for a sweep over all caches. The caller has not named this cache, so the sweep does not wait for
//! the cache's lock.
//!
//! Each cache is swept as its owner, as autovacuum would do, because its triggers are the owner's code and the caller
//! has not chosen to run them. If row-level security applies to the caller, the sweep runs as the caller, so that the
//! caller's own policies apply.

use std::rc::Rc;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Cache};
use crate::pg::catalog::privilege::{self, AsOwner, Privileges};
use crate::pg::catalog::relation;
use crate::pg::session::lock;

/// The privileges that the statements of a sweep need.
const TO_SWEEP: Privileges = Privileges::SELECT
    .and(Privileges::UPDATE)
    .and(Privileges::DELETE);

/// A cache that is open for a sweep; its lock is kept until the transaction ends.
pub struct Sweepable {
    pub cache: Rc<Cache>,
    _owner: Option<AsOwner>,
}

/// Opens a cache without waiting for its lock. Returns None if the cache is locked, no longer works as a cache, or may
/// not be swept by this caller. Raises 42501 if a trigger of the cache runs code of a role that lacks the owner's
/// privileges.
pub fn open(relation: Oid) -> Option<Sweepable> {
    if relation::is_temporary_elsewhere(relation)
        || !lock::try_relation(relation, lock::Mode::Write)
    {
        return None;
    }
    let cache = registry::find(relation).ok()?;
    // Each partition's triggers are checked when that partition is swept, as the partition's owner. A check of all
    // partitions here would have to wait for the partitions' locks.
    let as_owner = match cache.partitioned {
        true => AsOwner::to_maintain,
        false => AsOwner::to_remove,
    };
    let owner = (!privilege::row_security_applies(relation)).then(|| as_owner(relation));
    privilege::has(relation, TO_SWEEP).then_some(Sweepable {
        cache,
        _owner: owner,
    })
}
