//! Opens a cache for a sweep over all of them. The caller has not named the cache, so it does not wait for it.
//!
//! Each cache is swept as its owner, as autovacuum would, because its triggers are the owner's code, and a caller
//! that sweeps all caches has not chosen to run it. If row-level security applies to the caller, the caller's own
//! policies count, so it sweeps as itself.

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

/// A cache that is open to be swept; its lock is kept until the transaction ends.
pub struct Sweepable {
    pub cache: Rc<Cache>,
    _owner: Option<AsOwner>,
}

/// Opens a cache without waiting for its lock. None when it is locked, no longer works as a cache, or may not be
/// swept by this caller. Raises 42501 if sweeping would run user-defined code as its owner.
pub fn open(relation: Oid) -> Option<Sweepable> {
    if relation::is_temporary_elsewhere(relation)
        || !lock::try_relation(relation, lock::Mode::Write)
    {
        return None;
    }
    let cache = registry::find(relation).ok()?;
    // The triggers of partitions are judged when each is swept, as its owner: judging all of them here would wait for
    // their locks.
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
