//! The forms in which a column stores a deadline: a timestamptz, or a Unix time in seconds or milliseconds.
//!
//! SQL statements and direct writes must store deadlines in the same form, so the rules for datums in this file equal
//! the rules for SQL in `model::dialect`. A Unix time that is NULL, zero or negative means "never", as in tables of
//! other programs. In a column that is NOT NULL, "never" is 0, or for a timestamptz the last day of the year 9999.

use pgrx::pg_sys::{self, Datum, Oid};

use crate::pg::session::clock::Timestamp;

/// The form of the deadlines in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlineForm {
    pub kind: DeadlineKind,
    /// Whether the column accepts NULL.
    pub nullable: bool,
}

/// The type and unit of a deadline column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlineKind {
    Moment,
    Seconds(Width),
    Milliseconds(Width),
}

/// The width of an integer column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    Integer,
    Bigint,
}

/// 9999-12-31 00:00:00 UTC in seconds since 1970. This and later times mean "never".
pub const NEVER: i64 = 253_402_214_400;

/// Returns the length in microseconds of a unit; a second has `per_second` units.
#[inline(always)]
pub fn unit(per_second: i32) -> i64 {
    MICROS.checked_div(per_second.into()).unwrap_or(MICROS)
}

/// 2000-01-01, from which Postgres counts timestamps, in seconds since 1970.
const EPOCH: i64 = 946_684_800;
const MICROS: i64 = 1_000_000;

impl DeadlineKind {
    /// Returns the kind of a column of this type. `unit` is `s`, `ms` or None. Returns None if the type and the unit do
    /// not fit.
    pub fn of(type_oid: Oid, unit: Option<&[u8]>) -> Option<DeadlineKind> {
        let width = match type_oid {
            pg_sys::INT4OID => Some(Width::Integer),
            pg_sys::INT8OID => Some(Width::Bigint),
            _ => None,
        };
        match (unit, width) {
            (None, _) if type_oid == pg_sys::TIMESTAMPTZOID => Some(DeadlineKind::Moment),
            (Some(b"s"), Some(width)) => Some(DeadlineKind::Seconds(width)),
            (Some(b"ms"), Some(width)) => Some(DeadlineKind::Milliseconds(width)),
            _ => None,
        }
    }

    /// Returns the number of units in a second; None for a timestamptz.
    pub fn per_second(self) -> Option<i32> {
        match self {
            DeadlineKind::Moment => None,
            DeadlineKind::Seconds(_) => Some(1),
            DeadlineKind::Milliseconds(_) => Some(1000),
        }
    }

    /// Returns the OID of the column's type.
    #[inline(always)]
    pub fn oid(self) -> Oid {
        match self {
            DeadlineKind::Moment => pg_sys::TIMESTAMPTZOID,
            DeadlineKind::Seconds(width) | DeadlineKind::Milliseconds(width) => match width {
                Width::Integer => pg_sys::INT4OID,
                Width::Bigint => pg_sys::INT8OID,
            },
        }
    }
}

/// Returns the timestamp of a Unix time in units of this many microseconds; None means never.
#[inline(always)]
pub fn of_unix_time(number: i64, unit: i64) -> Option<Timestamp> {
    let never = NEVER.saturating_mul(MICROS.checked_div(unit).unwrap_or(1));
    let is_one = number > 0 && number < never;
    is_one.then(|| number.wrapping_mul(unit).wrapping_sub(EPOCH * MICROS))
}

/// Returns a timestamp as a Unix time in units of this many microseconds, rounded down.
pub fn to_unix_time(moment: Timestamp, unit: i64) -> i64 {
    let micros = moment.saturating_add(EPOCH * MICROS);
    micros.checked_div_euclid(unit).unwrap_or(0)
}

// Callers use `read` and `write` inside `unguarded::guarded`, where no code may panic, so this code uses arithmetic
// that cannot panic.
impl DeadlineForm {
    /// The form in a table that `cache_create` creates.
    pub const OWN: DeadlineForm = DeadlineForm {
        kind: DeadlineKind::Moment,
        nullable: true,
    };

    /// Returns the deadline in a datum; None means never.
    #[inline(always)]
    pub fn read(self, datum: Datum) -> Option<Timestamp> {
        let unit = match self.kind {
            DeadlineKind::Moment => {
                let never = (NEVER - EPOCH) * MICROS;
                let moment = datum.value() as Timestamp;
                return (self.nullable || moment < never).then_some(moment);
            }
            DeadlineKind::Seconds(_) => MICROS,
            DeadlineKind::Milliseconds(_) => MICROS / 1000,
        };
        let number = match self.kind.oid() {
            pg_sys::INT4OID => i64::from(datum.value() as i32),
            _ => datum.value() as i64,
        };
        of_unix_time(number, unit)
    }

    /// Returns the deadline that a reader finds after this deadline was written.
    pub fn rounded(self, deadline: Option<Timestamp>) -> Option<Timestamp> {
        self.write(deadline).and_then(|datum| self.read(datum))
    }

    /// Returns the datum for a deadline; None means NULL. Rounds a Unix time up; a time that does not fit the integer
    /// becomes the integer's maximum.
    #[inline(always)]
    pub fn write(self, deadline: Option<Timestamp>) -> Option<Datum> {
        let unit = match self.kind {
            DeadlineKind::Moment => {
                let never = (NEVER - EPOCH) * MICROS;
                let other = (!self.nullable).then_some(never);
                return deadline.or(other).map(Datum::from);
            }
            DeadlineKind::Seconds(_) => MICROS,
            DeadlineKind::Milliseconds(_) => MICROS / 1000,
        };
        let number = match deadline {
            None if self.nullable => return None,
            None => 0,
            Some(moment) => {
                let micros = moment.saturating_add(EPOCH * MICROS);
                let rounded_up = micros.saturating_add(unit - 1);
                rounded_up.checked_div_euclid(unit).unwrap_or(1).max(1)
            }
        };
        Some(match self.kind.oid() {
            pg_sys::INT4OID => Datum::from(number.min(i64::from(i32::MAX)) as i32),
            _ => Datum::from(number),
        })
    }
}
