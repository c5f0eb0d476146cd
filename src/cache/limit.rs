//! Rate limits: a counter whose deadline is the end of a fixed window.
//!
//! Guards that of all sessions together exactly `max_hits` are let through in a window: the increment is
//! atomic and its sum decides. A caller who finds the window full is refused without a write.

use pgrx::datum::Interval;

use super::catalog::registry::Cache;
use super::entries::{self, Entry};
use super::model::deadline::{self, Deadline};
use super::model::key::Key;
use crate::error::Error;
use crate::pg::session::clock;
use crate::pg::value::datum::Text;

/// The answer to one hit.
pub struct Verdict {
    pub allowed: bool,
    /// How many more hits this window lets through.
    pub remaining: i64,
    /// The end of the window, for a hit that was refused.
    pub until: Deadline,
}

/// Counts one hit, if the window has room. `parse` reads a stored counter, `sum` adds 1 to one.
pub fn hit(
    cache: &Cache,
    key: Key,
    max_hits: i64,
    per: Interval,
    parse: impl Fn(&Entry) -> Result<i64, Error>,
    sum: impl Fn(Option<Text>) -> Result<Text, Error>,
) -> Result<Verdict, Error> {
    loop {
        let present = entries::get(cache.relation, key)?;
        let hits = present.as_ref().map(&parse).transpose()?.unwrap_or(0);
        if let Some(entry) = present.filter(|_| hits >= max_hits) {
            return Ok(refused(entry.deadline));
        }
        let end = deadline::deadline(Some(per), None)?;
        let Some(value) = entries::increment(cache, key, 1, end, &sum)? else {
            return Ok(refused(None)); // a trigger of the user's kept it from being counted
        };
        let entry = Entry {
            value: Some(value),
            deadline: None,
        };
        let hits = parse(&entry)?;
        if hits <= max_hits {
            return Ok(Verdict {
                allowed: true,
                remaining: max_hits - hits,
                until: Some(clock::now()),
            });
        }
        // Others were faster; the next round finds the window full, or over.
    }
}

fn refused(until: Deadline) -> Verdict {
    Verdict {
        allowed: false,
        remaining: 0,
        until,
    }
}
