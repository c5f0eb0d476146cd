//! Expiry on demand and by schedule: expire, schedule_expiry.

use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use super::{Answer, TO_DELETE};
use crate::cache::expiry::{cron, on_demand};
use crate::cache::open;
use crate::error::Error;
use crate::pg::catalog::name;
use crate::pg::session::transaction;
use crate::pg::value::datum::Text;

#[pg_extern]
fn cache_expire_here(cache: Option<Oid>, max_rows: Option<i32>) -> Answer<i64> {
    let max_rows = i64::from(max_rows.ok_or(Error::NullArgument("max_rows"))?);
    if max_rows < 0 {
        return Err(Error::NegativeCount("max_rows").into());
    }
    if cache.is_none() {
        transaction::require_writable(c"cache_expire()");
        return Ok(on_demand::expire_all(max_rows)?);
    }
    let cache = open::to_write(cache, TO_DELETE, c"cache_expire()")?;
    Ok(on_demand::expire(&cache, max_rows)?)
}

#[pg_extern]
fn cache_schedule_expiry(
    schedule: Option<Text>,
    call: pg_sys::FunctionCallInfo,
) -> Answer<Option<Text>> {
    transaction::require_writable(c"cache_schedule_expiry()");
    let done = match schedule {
        None => cron::unschedule()?,
        Some(schedule) => cron::schedule(
            &schedule.to_string_lossy(),
            &name::beside_running_function(call, "cache_expire")?,
        )?,
    };
    Ok(Some(Text::new(done.as_bytes())))
}
