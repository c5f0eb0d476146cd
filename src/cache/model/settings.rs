//! The settings of a cache, and their stored form.
//!
//! A table cache keeps its settings as arguments of its row trigger, `pgcache.record('ttl=PT5M', ...)`, and a memory
//! cache as the argument of the function that its view calls. So the settings follow the relation through pg_dump
//! (whole and `-t`), rename, drop and a change of its OID. Rows of a separate table would not follow. The reserve is
//! the argument of a separate trigger.

use pgrx::datum::Interval;

use super::deadline;
use crate::error::Error;
use crate::pg::session::clock;

/// The settings of one cache.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Settings {
    /// The ttl of entries that are written without a ttl. None means no expiry.
    pub ttl: Option<Interval>,
    /// The largest number of entries that a sweep leaves. None means no limit.
    pub max_entries: Option<i64>,
    /// The time after its deadline during which an entry may be served as stale. None means that no entry is.
    pub grace: Option<Interval>,
    /// The ttl of negative entries that a loader makes. None means the ttl of values.
    pub negative_ttl: Option<Interval>,
    /// The largest share of a ttl that is subtracted at random. None means that nothing is subtracted.
    pub ttl_jitter: Option<f64>,
    /// The factor for the mean time of the cache's loaders when a fetch decides whether to refresh a live entry early.
    /// None means that no fetch refreshes early.
    pub early_refresh: Option<f64>,
    /// The smallest share of the ttl by which a touch moves a deadline; a smaller move writes nothing. None means that
    /// each touch writes.
    pub touch_after: Option<f64>,
    /// The bytes that the cache may take. Above them, a write to this cache evicts the cache's own entries, and a sweep
    /// removes entries. None means no limit.
    pub max_bytes: Option<i64>,
    /// The bytes of the tier that writes to other caches leave to this cache. A separate trigger stores them, because
    /// not every role may create that trigger. None means no reserve.
    pub reserve: Option<i64>,
    /// The number that the function of a memory cache's view uses to find the cache.
    pub id: Option<u64>,
    /// The OID of the view at its creation, which distinguishes the view from other views with the same id.
    pub oid: Option<u32>,
    /// The number of the channel on which changes are published. None means that they are not published.
    pub watch: Option<u64>,
}

impl Settings {
    /// Returns the settings after a change of ttl, limit of entries and grace. NULL keeps a setting; a ttl of forever
    /// and a 0 in the other two arguments remove it. Raises 22023 for a value out of its range.
    pub fn changed(
        self,
        ttl: Option<Interval>,
        max_entries: Option<i64>,
        grace: Option<Interval>,
    ) -> Result<Settings, Error> {
        Ok(Settings {
            watch: self.watch,
            ttl: match ttl {
                None => self.ttl,
                Some(ttl) => {
                    deadline::check_ttl(&ttl)?;
                    (!deadline::is_forever(clock::now(), &ttl)).then_some(ttl)
                }
            },
            max_entries: match max_entries {
                None => self.max_entries,
                Some(n) if n < 0 => return Err(Error::NegativeCount("max_entries")),
                Some(n) => (n > 0).then_some(n),
            },
            grace: match grace {
                None => self.grace,
                Some(grace) if grace.as_micros() < 0 => return Err(Error::NegativeGrace),
                Some(grace) => (grace.as_micros() > 0).then_some(grace),
            },
            ..self
        })
    }

    /// Returns the settings after a change of the refresh settings. NULL keeps a setting; a ttl of forever and a 0 in
    /// the other arguments remove it. Raises 22023 for a value out of its range.
    pub fn refreshed(
        self,
        negative_ttl: Option<Interval>,
        ttl_jitter: Option<f64>,
        early_refresh: Option<f64>,
        touch_after: Option<f64>,
    ) -> Result<Settings, Error> {
        let changed = |former, share: Option<f64>| match share {
            None => former,
            Some(share) => (share > 0.0).then_some(share),
        };
        if ttl_jitter.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err(Error::JitterOutOfRange);
        }
        if early_refresh.is_some_and(|factor| !factor.is_finite() || factor < 0.0) {
            return Err(Error::EarlyRefreshOutOfRange);
        }
        if touch_after.is_some_and(|share| !(0.0..=0.5).contains(&share)) {
            return Err(Error::TouchAfterOutOfRange);
        }
        Ok(Settings {
            negative_ttl: match negative_ttl {
                None => self.negative_ttl,
                Some(ttl) => {
                    deadline::check_ttl(&ttl)?;
                    (!deadline::is_forever(clock::now(), &ttl)).then_some(ttl)
                }
            },
            ttl_jitter: changed(self.ttl_jitter, ttl_jitter),
            early_refresh: changed(self.early_refresh, early_refresh),
            touch_after: changed(self.touch_after, touch_after),
            ..self
        })
    }

    /// Returns the settings after a change of the cache's limit and reserve in the tier. NULL keeps a setting; 0
    /// removes it. Raises 22023 for a negative value and for a reserve above the limit.
    pub fn shared(self, max_bytes: Option<i64>, reserve: Option<i64>) -> Result<Settings, Error> {
        let changed = |name, former, bytes: Option<i64>| match bytes {
            None => Ok(former),
            Some(bytes) if bytes < 0 => Err(Error::NegativeBytes(name)),
            Some(bytes) => Ok((bytes > 0).then_some(bytes)),
        };
        let settings = Settings {
            max_bytes: changed("max_bytes", self.max_bytes, max_bytes)?,
            reserve: changed("reserve", self.reserve, reserve)?,
            ..self
        };
        match (settings.reserve, settings.max_bytes) {
            (Some(reserve), Some(most)) if reserve > most => Err(Error::ReserveAboveBound),
            _ => Ok(settings),
        }
    }

    /// Returns the settings with the reserve that the arguments of its trigger give.
    pub fn with_reserve(self, arguments: Option<&[Vec<u8>]>) -> Settings {
        let bytes = arguments.and_then(|arguments| {
            let text = str::from_utf8(arguments.first()?).ok()?;
            text.parse().ok().filter(|&bytes: &i64| bytes > 0)
        });
        Settings {
            reserve: bytes,
            ..self
        }
    }

    /// Returns the arguments of the trigger, one for each setting that is set, except the reserve.
    pub fn to_arguments(self) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(ttl) = self.ttl {
            arguments.push(format!("ttl={}", iso_8601(&ttl)));
        }
        if let Some(n) = self.max_entries {
            arguments.push(format!("max_entries={n}"));
        }
        if let Some(grace) = self.grace {
            arguments.push(format!("grace={}", iso_8601(&grace)));
        }
        if let Some(ttl) = self.negative_ttl {
            arguments.push(format!("negative_ttl={}", iso_8601(&ttl)));
        }
        if let Some(share) = self.ttl_jitter {
            arguments.push(format!("ttl_jitter={share}"));
        }
        if let Some(factor) = self.early_refresh {
            arguments.push(format!("early_refresh={factor}"));
        }
        if let Some(share) = self.touch_after {
            arguments.push(format!("touch_after={share}"));
        }
        if let Some(bytes) = self.max_bytes {
            arguments.push(format!("max_bytes={bytes}"));
        }
        if let Some(id) = self.id {
            arguments.push(format!("id={id}"));
        }
        if let Some(oid) = self.oid {
            arguments.push(format!("oid={oid}"));
        }
        if let Some(watch) = self.watch {
            arguments.push(format!("watch={watch}"));
        }
        arguments
    }

    /// Reads the arguments of the trigger. Returns a message about the first unknown argument as an error.
    pub fn from_arguments(arguments: &[Vec<u8>]) -> Result<Settings, String> {
        let mut settings = Settings::default();
        for argument in arguments {
            let argument = String::from_utf8_lossy(argument);
            let known = match argument.split_once('=') {
                Some(("ttl", span)) => parse_span(span).map(|s| settings.ttl = Some(s)),
                Some(("max_entries", n)) => n.parse().ok().map(|n| settings.max_entries = Some(n)),
                Some(("grace", span)) => parse_span(span).map(|s| settings.grace = Some(s)),
                Some(("negative_ttl", span)) => {
                    parse_span(span).map(|s| settings.negative_ttl = Some(s))
                }
                Some(("ttl_jitter", share)) => {
                    share.parse().ok().map(|s| settings.ttl_jitter = Some(s))
                }
                Some(("early_refresh", factor)) => factor
                    .parse()
                    .ok()
                    .map(|f| settings.early_refresh = Some(f)),
                Some(("touch_after", share)) => {
                    share.parse().ok().map(|s| settings.touch_after = Some(s))
                }
                Some(("max_bytes", n)) => n.parse().ok().map(|n| settings.max_bytes = Some(n)),
                Some(("id", id)) => id.parse().ok().map(|id| settings.id = Some(id)),
                Some(("watch", n)) => n.parse().ok().map(|n| settings.watch = Some(n)),
                Some(("oid", oid)) => oid.parse().ok().map(|oid| settings.oid = Some(oid)),
                _ => None,
            };
            known.ok_or_else(|| {
                format!("The cache's trigger has the unknown setting \"{argument}\".")
            })?;
        }
        Ok(settings)
    }
}

/// Formats a span as ISO 8601 in the three fields of an interval: months, days, seconds. Postgres reads the result the
/// same way under every IntervalStyle and DateStyle.
pub fn iso_8601(span: &Interval) -> String {
    let (months, days, micros) = (span.months(), span.days(), span.micros());
    let mut text = String::from("P");
    if months != 0 {
        text += &format!("{months}M");
    }
    if days != 0 {
        text += &format!("{days}D");
    }
    if micros != 0 || text.len() == 1 {
        text += &format!("T{}S", decimal_seconds(micros));
    }
    text
}

fn decimal_seconds(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let whole = micros.unsigned_abs() / 1_000_000;
    match micros.unsigned_abs() % 1_000_000 {
        0 => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction:06}"),
    }
}

/// Reads the form that [`iso_8601`] writes, and no other form. Rejects a negative span, because no setting is negative:
/// a negative grace could reach beyond the end of time, and a call for all caches could not skip the cache.
fn parse_span(text: &str) -> Option<Interval> {
    let text = text.strip_prefix('P')?;
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    let (months, date) = field(date, 'M')?;
    let (days, rest) = field(date, 'D')?;
    let micros = match time {
        "" => 0,
        time => parse_seconds(time.strip_suffix('S')?)?,
    };
    rest.is_empty()
        .then(|| clock::interval(months, days, micros))?
        .filter(|span| span.as_micros() >= 0)
}

/// Splits a number off before a letter. The number is 0 if the letter is absent. Returns the number and the rest.
fn field(text: &str, letter: char) -> Option<(i32, &str)> {
    match text.split_once(letter) {
        None => Some((0, text)),
        Some((number, rest)) => Some((number.parse().ok()?, rest)),
    }
}

fn parse_seconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "000000"));
    let fraction: i64 = (fraction.len() == 6).then(|| fraction.parse().ok())??;
    let micros = whole.parse::<i64>().ok()?.checked_mul(1_000_000)?;
    match whole.starts_with('-') {
        true => micros.checked_sub(fraction),
        false => micros.checked_add(fraction),
    }
}
