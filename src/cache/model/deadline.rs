//! Converts a ttl (a duration) to a deadline (a moment), and decides whether a deadline has passed.
//!
//! The rules: NULL means the cache's default. A ttl of zero or less is an error. A ttl below a millisecond counts as a
//! millisecond. A deadline beyond the range of timestamptz means "no expiry". An entry is expired from its deadline on,
//! by the wall clock.

use pgrx::datum::Interval;

use crate::error::Error;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::random;

/// The shortest ttl in microseconds. Deadlines have this precision.
const SHORTEST: i64 = 1_000;
const DAY: i128 = 86_400_000_000;
/// The days in 400 years. Divided by [`MONTHS_PER_CYCLE`], they are the calendar's exact mean length of a month.
const DAYS_PER_CYCLE: i128 = 146_097;
/// The months in 400 years.
const MONTHS_PER_CYCLE: i128 = 4_800;
/// The largest difference between a span of months and its mean length, including changes of the time zone's offset.
const SLACK: i128 = 5 * DAY;

/// The result of `cache_forever()`: a million years, beyond any timestamp in every version.
pub const FOREVER_MONTHS: i32 = 12_000_000;

/// The moment when an entry expires; None if it never expires.
pub type Deadline = Option<Timestamp>;

/// Checks a ttl: zero and negative spans, minus infinity among them, are errors.
pub fn check_ttl(ttl: &Interval) -> Result<(), Error> {
    match ttl.as_micros() > 0 {
        true => Ok(()),
        false => Err(Error::TtlNotPositive),
    }
}

/// Returns the deadline of an entry that is written now, without jitter. `default` applies if no ttl is given.
pub fn deadline(ttl: Option<Interval>, default: Option<Interval>) -> Result<Deadline, Error> {
    let Some(ttl) = ttl.or(default) else {
        return Ok(None);
    };
    check_ttl(&ttl)?;
    Ok(after(clock::now(), &ttl))
}

/// Returns `now + ttl` for a positive ttl; None if the sum is beyond the range of timestamps.
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

/// Returns whether a deadline is so far away that the entry never expires. Decides by the mean length of a month, so
/// that no arithmetic overflows; a ttl that ends within a few days of the end of the range counts as forever.
pub fn is_forever(now: Timestamp, ttl: &Interval) -> bool {
    i128::from(now) + mean_micros(ttl) >= i128::from(clock::END) - SLACK
}

/// Returns the deadline up to which rows are swept: now, minus the grace. A grace that reaches back beyond the
/// beginning of the range keeps all rows.
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

/// Returns the deadline of an entry that is written now. Shortens its ttl at random by up to `jitter`, a share of the
/// ttl, so that entries that are written together do not expire together.
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

/// Returns whether a touch that moves a deadline from `old` to `new` moves it by less than this share of its ttl, where
/// the ttl is the time from now to `new`. Returns false for a touch that shortens the life of an entry, removes its
/// deadline, or gives an entry without a deadline one.
pub fn moves_little(old: Deadline, new: Deadline, share: f64) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    let moved = i128::from(new) - i128::from(old);
    let ttl = i128::from(new) - i128::from(clock::now());
    (moved >= 0 || fault::on(Fault::ShorterTouchLeft)) && (moved as f64) < share * ttl as f64
}

/// Returns whether an entry with this deadline is live now, or has expired less than `grace` ago.
pub fn is_within(deadline: Deadline, grace: Option<Interval>) -> bool {
    let since = swept_until(clock::now(), grace);
    deadline.is_none_or(|deadline| deadline == clock::INFINITY || deadline > since)
}

/// Returns whether an entry with this deadline is live now.
pub fn is_live(deadline: Deadline) -> bool {
    deadline.is_none_or(|deadline| deadline == clock::INFINITY || deadline > clock::now())
}
