//! From a ttl (a duration) to a deadline (a moment), and whether a deadline has passed.
//!
//! Guards the rules: NULL is the cache's default, zero and negative are errors, anything below a
//! millisecond is a millisecond, anything beyond the range of timestamptz is "no expiry". An entry
//! is expired from its deadline on, by the wall clock.

use pgrx::datum::Interval;

use crate::error::Error;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::random;

/// The shortest ttl, in microseconds: the precision of a deadline.
const SHORTEST: i64 = 1_000;
const DAY: i128 = 86_400_000_000;
/// Days in 400 years over months in 400 years: the calendar's exact mean.
const DAYS_PER_CYCLE: i128 = 146_097;
const MONTHS_PER_CYCLE: i128 = 4_800;
/// How far a span of months can be from the calendar's mean, time zones included.
const SLACK: i128 = 5 * DAY;

/// What `cache_forever()` returns: a million years, beyond any timestamp in every version.
pub const FOREVER_MONTHS: i32 = 12_000_000;

/// When an entry ends. `None`: never.
pub type Deadline = Option<Timestamp>;

/// Checks a ttl: zero and negative spans, minus infinity among them, are errors.
pub fn check_ttl(ttl: &Interval) -> Result<(), Error> {
    match ttl.as_micros() > 0 {
        true => Ok(()),
        false => Err(Error::TtlNotPositive),
    }
}

/// The deadline of an entry written now.
pub fn deadline(ttl: Option<Interval>, default: Option<Interval>) -> Result<Deadline, Error> {
    let Some(ttl) = ttl.or(default) else {
        return Ok(None);
    };
    check_ttl(&ttl)?;
    Ok(after(clock::now(), &ttl))
}

/// `now + ttl` for a positive ttl; None when that is beyond the range of timestamps.
fn after(now: Timestamp, ttl: &Interval) -> Deadline {
    if is_forever(now, ttl) {
        return None;
    }
    let deadline = match (ttl.months(), ttl.days()) {
        (0, 0) => now + ttl.micros(),
        _ => clock::plus(now, ttl),
    };
    Some(deadline.max(now + SHORTEST))
}

/// Whether a deadline so far away is none. Judged by the mean length of a month, so that no
/// arithmetic overflows; within a few days of the end of time "forever" wins.
pub fn is_forever(now: Timestamp, ttl: &Interval) -> bool {
    i128::from(now) + mean_micros(ttl) >= i128::from(clock::END) - SLACK
}

/// The deadline up to which rows are swept: now, less the grace. A grace that reaches back beyond
/// the beginning of time keeps them all.
pub fn swept_until(now: Timestamp, grace: Option<Interval>) -> Timestamp {
    match grace {
        None => now,
        Some(grace) if i128::from(now) - mean_micros(&grace) < i128::from(clock::BEGIN) + SLACK => {
            clock::BEGIN
        }
        Some(grace) => clock::minus(now, &grace),
    }
}

fn mean_micros(span: &Interval) -> i128 {
    let months = i128::from(span.months()) * DAYS_PER_CYCLE * DAY / MONTHS_PER_CYCLE;
    months + i128::from(span.days()) * DAY + i128::from(span.micros())
}

/// The deadline of an entry written now whose ttl is made up to `jitter` (a share of it) shorter by
/// chance, so that what was written together does not expire together.
pub fn with_jitter(
    ttl: Option<Interval>,
    default: Option<Interval>,
    jitter: Option<f64>,
) -> Result<Deadline, Error> {
    let deadline = deadline(ttl, default)?;
    let (Some(deadline), Some(jitter)) = (deadline, jitter) else {
        return Ok(deadline);
    };
    let now = clock::now();
    let shorter = (deadline - now) as f64 * jitter * random::fraction();
    Ok(Some((deadline - shorter as i64).max(now + SHORTEST)))
}

/// Whether a touch that moves a deadline from `old` to `new` moves it by less than this share of its ttl, which is the
/// time from now to `new`. No to a touch that shortens the life of an entry, removes its deadline, or gives it one.
pub fn moves_little(old: Deadline, new: Deadline, share: f64) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    let moved = i128::from(new) - i128::from(old);
    let ttl = i128::from(new) - i128::from(clock::now());
    (moved >= 0 || fault::on(Fault::ShorterTouchLeft)) && (moved as f64) < share * ttl as f64
}

/// Whether an entry with this deadline is live now, or has expired less than `grace` ago.
pub fn is_within(deadline: Deadline, grace: Option<Interval>) -> bool {
    let since = swept_until(clock::now(), grace);
    deadline.is_none_or(|deadline| deadline == clock::INFINITY || deadline > since)
}

/// Whether an entry with this deadline is live now.
pub fn is_live(deadline: Deadline) -> bool {
    deadline.is_none_or(|deadline| deadline == clock::INFINITY || deadline > clock::now())
}
