//! The SQL function for rate limits, `cache_rate_limit`. `cache::limit` counts the hits; this file checks the
//! arguments and computes `retry_after`.

use pgrx::datum::Interval;
use pgrx::pg_sys::Oid;

use super::write::open_with_key;
use super::{Answer, TO_WRITE, WRITE};
use crate::cache::limit;
use crate::cache::model::deadline;
use crate::error::Error;
use crate::pg::session::clock;
use crate::pg::value::datum::Text;
use crate::pg::value::rows::OutRow;
use crate::pg::value::typed::Typed;

functions! {
    /// Counts one hit if the window has room. Columns: allowed, remaining, retry_after.
    [3, WRITE, TO_WRITE]
    fn cache_rate_limit:
    fn(
        key: Option<Text>,
        max_hits: Option<i64>,
        per: Option<Interval>,
        cache: Option<Oid>,
    ) -> Answer<OutRow<3>> {
        let (cache, key) = open_with_key(key, cache, NAME)?;
        let max_hits = max_hits.ok_or(Error::NullArgument("max_hits"))?;
        let per = per.ok_or(Error::NullArgument("per"))?;
        if max_hits <= 0 {
            return Err(Error::LimitNotPositive.into());
        }
        deadline::check_ttl(&per).map_err(|_| Error::WindowNotPositive)?;
        let verdict = limit::hit(&cache, key, max_hits, per)?;
        let wait = verdict.until.map(|until| (until - clock::now()).max(0));
        let retry_after = match verdict.allowed {
            true => clock::interval(0, 0, 0),
            false => wait.and_then(|micros| clock::interval(0, 0, micros)),
        };
        Ok(OutRow([
            Typed::of(Some(verdict.allowed)),
            Typed::number(verdict.remaining),
            Typed::of(retry_after),
        ]))
    }
}
