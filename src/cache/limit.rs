//! Rate limits: an entry counts the hits of a fixed time window, and its deadline is the end of the window.
//!
//! All sessions together get exactly `max_hits` hits in a window, because the increment is atomic and its result
//! decides. A caller that finds the window full is refused without a write.

use pgrx::datum::Interval;

use super::catalog::registry::Cache;
use super::entries::{self, Look};
use super::model::counter;
use super::model::deadline::{self, Deadline};
use super::model::key::Key;
use crate::error::Error;
use crate::pg::value::convert;
use crate::pg::value::datum::Text;
use crate::pg::value::stored::Stored;

/// The result of one hit.
pub struct Verdict {
    pub allowed: bool,
    /// How many more hits the window allows.
    pub remaining: i64,
    /// The end of the window after a refused hit; None if it is unknown.
    pub until: Deadline,
}

/// Counts one hit if the window has room.
pub fn hit(cache: &Cache, key: Key, max_hits: i64, per: Interval) -> Result<Verdict, Error> {
    let hashed = cache.hashed(key);
    let mut counts = Look::Counted;
    loop {
        let present = entries::find(cache.relation, hashed, counts)?.entry;
        counts = Look::Uncounted;
        let hits = present.map_or(Ok(0), |entry| hits_in(entry.value))?;
        if let Some(entry) = present.filter(|_| hits >= max_hits) {
            return Ok(refused(entry.deadline));
        }
        let end = deadline::deadline(Some(per), None)?;
        let Some(hits) = entries::increment(cache, key, 1, end)? else {
            return Ok(refused(None)); // a user-defined trigger kept the hit from being counted
        };
        if hits <= max_hits {
            return Ok(Verdict {
                allowed: true,
                remaining: max_hits.saturating_sub(hits),
                until: None,
            });
        }
        // Other sessions have counted hits in between. The next round finds the window full or ended.
    }
}

/// Returns the hits of a stored counter; 0 for a negative entry.
fn hits_in(value: Option<Stored>) -> Result<i64, Error> {
    value.map_or(Ok(0), |value| {
        counter::parse(convert::result::<Text>(value).bytes())
    })
}

fn refused(until: Deadline) -> Verdict {
    Verdict {
        allowed: false,
        remaining: 0,
        until,
    }
}
