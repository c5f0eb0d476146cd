//! Rate limits: cache_rate_limit.

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;
use pgrx::prelude::*;

use super::Answer;
use super::write::{add_to, open, parse_counter};
use crate::cache::limit;
use crate::cache::model::deadline;
use crate::error::Error;
use crate::pg::session::clock;
use crate::pg::value::convert;
use crate::pg::value::datum::Text;
use crate::pg::value::rows::Record;
use crate::pg::value::typed::Typed;

#[pg_extern]
fn cache_rate_limit(
    key: Option<Text>,
    max_hits: Option<i64>,
    per: Option<Interval>,
    cache: Option<Oid>,
) -> Answer<Record<3>> {
    let (cache, key) = open(key, cache, c"cache_rate_limit()")?;
    let max_hits = max_hits.ok_or(Error::NullArgument("max_hits"))?;
    let per = per.ok_or(Error::NullArgument("per"))?;
    if max_hits <= 0 {
        return Err(Error::LimitNotPositive.into());
    }
    deadline::check_ttl(&per).map_err(|_| Error::WindowNotPositive)?;
    let verdict = limit::hit(
        &cache,
        key,
        max_hits,
        per,
        |entry| match entry.value {
            Some(value) => parse_counter(convert::result::<Text>(value).bytes()),
            None => Ok(0),
        },
        |value| match value {
            Some(value) => add_to(value, 1),
            None => Ok(Text::new(b"1")),
        },
    )?;
    let wait = verdict.until.map(|until| (until - clock::now()).max(0));
    let retry_after = match verdict.allowed {
        true => clock::interval(0, 0, 0),
        false => wait.and_then(|micros| clock::interval(0, 0, micros)),
    };
    Ok(Record([
        Typed::of(Some(verdict.allowed)),
        Typed::number(verdict.remaining),
        Typed::of(retry_after),
    ]))
}
