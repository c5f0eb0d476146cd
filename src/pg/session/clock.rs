//! Reads the wall clock, and does arithmetic on timestamps and intervals.
//!
//! Deadlines are compared with the current time, as `clock_timestamp()` returns it, and not with the transaction's
//! start, so that a long transaction does not keep entries alive.

use pgrx::datum::Interval;
use pgrx::{FromDatum, IntoDatum, pg_sys};

/// A `timestamptz` as Postgres stores it: microseconds since 2000-01-01.
pub type Timestamp = pg_sys::TimestampTz;

/// `infinity` as a timestamp, which means no deadline.
pub const INFINITY: Timestamp = i64::MAX;

/// The first timestamp beyond the range (294277-01-01), from Postgres' datatype/timestamp.h.
pub const END: Timestamp = 9_223_371_331_200_000_000;

/// The first timestamp of the range (4714-11-24 BC), from the same file.
pub const BEGIN: Timestamp = -211_813_488_000_000_000;

unsafe extern "C-unwind" {
    // Raises no error, so it needs no pgrx guard.
    fn GetCurrentTimestamp() -> pg_sys::TimestampTz;
}

/// Returns the current time.
#[inline]
pub fn now() -> Timestamp {
    // SAFETY: reads the system clock.
    unsafe { GetCurrentTimestamp() }
}

/// Returns the time at which the server started.
pub fn server_start() -> Timestamp {
    // SAFETY: reads a variable that the postmaster set before this process began.
    unsafe { pg_sys::PgStartTime }
}

/// Returns the time at which the client's current statement began.
pub fn statement_start() -> Timestamp {
    // SAFETY: reads a variable of this process.
    unsafe { pg_sys::GetCurrentStatementStartTimestamp() }
}

/// Makes an interval of these fields, each with its own sign, as in SQL. Returns None if Postgres cannot make it.
pub fn interval(months: i32, days: i32, micros: i64) -> Option<Interval> {
    let mut fields = pg_sys::Interval {
        time: micros,
        day: days,
        month: months,
    };
    // SAFETY: the datum points to an interval that lives through the call, which copies it.
    unsafe { Interval::from_datum(pg_sys::Datum::from(&raw mut fields), false) }
}

/// Returns `from + span`, with months and days counted in the session's time zone.
pub fn plus(from: Timestamp, span: &Interval) -> Timestamp {
    add(pg_sys::timestamptz_pl_interval, from, span)
}

/// Returns `from - span`.
pub fn minus(from: Timestamp, span: &Interval) -> Timestamp {
    add(pg_sys::timestamptz_mi_interval, from, span)
}

fn add(
    function: unsafe fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum,
    from: Timestamp,
    span: &Interval,
) -> Timestamp {
    // SAFETY: both functions take (timestamptz, interval) and return a timestamptz.
    unsafe {
        pgrx::direct_function_call_as_datum(
            function,
            &[Some(pg_sys::Datum::from(from)), (*span).into_datum()],
        )
    }
    .map_or(from, |datum| datum.value() as Timestamp)
}

/// Returns `to - from` as an interval of days and time, like the SQL operator.
pub fn between(from: Timestamp, to: Timestamp) -> Option<Interval> {
    // SAFETY: timestamp_mi takes two finite timestamps and returns an interval.
    unsafe {
        pgrx::direct_function_call(
            pg_sys::timestamp_mi,
            &[
                Some(pg_sys::Datum::from(to)),
                Some(pg_sys::Datum::from(from)),
            ],
        )
    }
}

/// Microseconds from 1970 to 2000.
const UNIX: i64 = 946_684_800_000_000;

/// Returns the seconds since 1970, and the microseconds of the last second.
pub fn unix(moment: Timestamp) -> (i64, i64) {
    let micros = moment.saturating_add(UNIX);
    (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000))
}
