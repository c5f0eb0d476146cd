//! Removing expired rows. Reads never depend on it: it only gives space back.

use pgrx::pg_sys::{Datum, Oid};

use super::deadline;
use super::memory;
use super::registry::Storage;
use super::registry::{self, Cache};
use super::statement::Statement;
use super::table::as_owner_unless;
use super::watch;
use crate::error::Error;
use crate::pg::plan::query_once;
use crate::pg::privilege::{self, AsOwner, Privileges};
use crate::pg::tier::Figure;
use crate::pg::{clock, lock};

/// What the statement itself needs.
const TO_SWEEP: Privileges = Privileges::SELECT
    .and(Privileges::UPDATE)
    .and(Privileges::DELETE);

/// Removes at most `max_rows` rows whose deadline, and grace, have passed; says how many.
///
/// Rows that somebody else has locked are left for the next sweep, so a sweep waits for nobody.
pub fn expire(cache: &Cache, max_rows: i64) -> Result<i64, Error> {
    if cache.storage == Storage::Memory {
        return memory::expire(cache, max_rows);
    }
    let _owner = as_owner_unless(cache, Privileges::SELECT.and(Privileges::UPDATE));
    let _sweeping = watch::Sweeping::enter();
    let limit = deadline::swept_until(clock::now(), cache.settings.grace);
    let removed = cache.plan(Statement::Expire).run(
        &[Some(Datum::from(limit)), Some(Datum::from(max_rows))],
        |output| output.processed,
    );
    cache.count(Figure::Expired, removed);
    Ok(removed as i64)
}

/// The same over all caches of the database that the caller may delete from; one that is locked
/// against writers or no longer works as a cache is passed over.
///
/// Each is swept as its owner, as autovacuum would: the triggers on it are the owner's code, and
/// whoever sweeps them all has not chosen to run it. Where row-level security applies to the caller
/// his own policies count, so he sweeps as himself.
pub fn expire_all(max_rows: i64) -> Result<i64, Error> {
    let mut removed = 0;
    for relation in all_caches() {
        if removed >= max_rows {
            break;
        }
        if !privilege::has(relation, Privileges::DELETE)
            || !lock::try_relation(relation, lock::Mode::Write)
        {
            continue;
        }
        let Ok(cache) = registry::find(relation) else {
            continue;
        };
        let _owner =
            (!privilege::row_security_applies(relation)).then(|| AsOwner::to_maintain(relation));
        if privilege::has(relation, TO_SWEEP) {
            removed += expire(&cache, max_rows - removed)?;
        }
    }
    Ok(removed)
}

/// Every cache of the database.
pub fn all_caches() -> Vec<Oid> {
    query_once(
        c"SELECT c.cache FROM pgcache.all_caches AS c ORDER BY c.cache",
        &[],
        &[],
        |output| {
            (0..output.rows())
                .filter_map(|row| output.raw(row, 0))
                .map(|oid| Oid::from_u32(oid.value() as u32))
                .collect()
        },
    )
}
