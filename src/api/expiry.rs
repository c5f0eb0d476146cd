//! SQL functions that remove expired entries: on demand (`cache_expire`, `pgcache.expire_for`), or by a pg_cron job
//! (`cache_schedule_expiry`).

use pgrx::datum::Interval;
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use super::{Answer, SWEEP, TO_DELETE};
use crate::cache::expiry::cron::{self, Job};
use crate::cache::expiry::on_demand;
use crate::cache::open;
use crate::error::Error;
use crate::pg::catalog::name;
use crate::pg::session::transaction;
use crate::pg::value::datum::Text;
use crate::pg::value::rows::OutRow;
use crate::pg::value::typed::Typed;

functions! {
    /// Removes expired entries of one cache, or of all caches if no cache is named. Returns the number of removed
    /// entries.
    [0, SWEEP, TO_DELETE]
    fn cache_expire: fn(cache: Option<Oid>, max_rows: Option<i32>) -> Answer<i64> {
        let max_rows = i64::from(max_rows.ok_or(Error::NullArgument("max_rows"))?);
        if max_rows < 0 {
            return Err(Error::NegativeCount("max_rows").into());
        }
        if cache.is_none() {
            transaction::require_writable(NAME);
            return Ok(on_demand::expire_all(max_rows)?);
        }
        let cache = open::to_write(cache, TO_DELETE, NAME)?;
        Ok(on_demand::expire(&cache, max_rows)?)
    }
}

/// Removes expired entries until no entry is due or the time is over. Columns: removed, done.
#[pg_extern]
fn expire_for(max_time: Option<Interval>) -> Answer<OutRow<2>> {
    let max_time = max_time.ok_or(Error::NullArgument("max_time"))?;
    if max_time.as_micros() < 0 {
        return Err(Error::NegativeCount("max_time").into());
    }
    transaction::require_writable(c"pgcache.expire_for()");
    let (removed, done) = on_demand::expire_for(&max_time)?;
    Ok(OutRow([Typed::number(removed), Typed::of(Some(done))]))
}

#[pg_extern]
fn cache_schedule_expiry_timed(
    schedule: Option<Text>,
    max_time: Option<Interval>,
    call: pg_sys::FunctionCallInfo,
) -> Answer<Option<Text>> {
    if max_time.is_some_and(|max_time| max_time.as_micros() < 0) {
        return Err(Error::NegativeCount("max_time").into());
    }
    schedule_expiry(schedule, Job::Timed(max_time), call)
}

/// Implements `cache_schedule_expiry` for databases whose extension is older than 0.5.0.
#[pg_extern]
fn cache_schedule_expiry(
    schedule: Option<Text>,
    call: pg_sys::FunctionCallInfo,
) -> Answer<Option<Text>> {
    schedule_expiry(schedule, Job::Batch, call)
}

fn schedule_expiry(
    schedule: Option<Text>,
    job: Job,
    call: pg_sys::FunctionCallInfo,
) -> Answer<Option<Text>> {
    transaction::require_writable(c"cache_schedule_expiry()");
    let done = match schedule {
        None => cron::unschedule()?,
        Some(schedule) => cron::schedule(
            &schedule.to_string_lossy(),
            job,
            &name::beside_running_function(call, "cache_expire")?,
        )?,
    };
    Ok(Some(Text::new(done.as_bytes())))
}
