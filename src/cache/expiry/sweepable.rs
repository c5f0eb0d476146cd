//! Opening a cache for a sweep over all of them: nobody has named it, so nobody waits for it.
//!
//! Each is swept as its owner, as autovacuum would: the triggers on it are the owner's code, and
//! whoever sweeps them all has not chosen to run it. Where row-level security applies to the caller
//! their own policies count, so they sweep as themselves.

use std::rc::Rc;

use pgrx::pg_sys::Oid;

use crate::cache::catalog::registry::{self, Cache};
use crate::pg::catalog::privilege::{self, AsOwner, Privileges};
use crate::pg::catalog::relation;
use crate::pg::session::lock;

/// What the statements of a sweep need.
const TO_SWEEP: Privileges = Privileges::SELECT
    .and(Privileges::UPDATE)
    .and(Privileges::DELETE);

/// A cache that is open to be swept; its lock lasts until the transaction ends.
pub struct Sweepable {
    pub cache: Rc<Cache>,
    _owner: Option<AsOwner>,
}

/// Opens a cache without waiting for its lock. None when it is locked, no longer works as a cache,
/// or may not be swept by who would do it. Raises 42501 where that would run user-defined code as its
/// owner.
pub fn open(relation: Oid) -> Option<Sweepable> {
    if relation::is_temporary_elsewhere(relation)
        || !lock::try_relation(relation, lock::Mode::Write)
    {
        return None;
    }
    let cache = registry::find(relation).ok()?;
    // The triggers of partitions are judged where each is swept, as its owner: all of them here would have to
    // be waited for.
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
