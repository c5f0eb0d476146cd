//! Schedules expiry in pg_cron, with one job per database. Creates and removes the job with dynamic SQL.
//!
//! pg_cron is optional. The extension installs and works without it, so its SQL script refers to no object of pg_cron.

use std::ffi::CStr;

use pgrx::datum::Interval;
use pgrx::pg_sys::TEXTOID;

use crate::cache::model::settings::iso_8601;
use crate::error::Error;
use crate::pg::catalog::name;
use crate::pg::spi::plan::query_once;
use crate::pg::value::datum::Text;
use crate::pg::value::typed::Typed;

/// The first version of pg_cron that supports schedules in seconds.
const SECONDS_SINCE: (u32, u32) = (1, 5);
/// The first version of pg_cron that records each run.
const RUN_DETAILS_SINCE: (u32, u32) = (1, 3);
/// The number of rows that `cache_expire` removes by default.
const BATCH: i32 = 10_000;
/// The schedule that replaces a schedule in seconds on older versions.
const EVERY_MINUTE: &str = "* * * * *";

/// The command of a job.
#[derive(Clone, Copy)]
pub enum Job {
    /// One call of `cache_expire`.
    Batch,
    /// A call of `pgcache.expire_for` with this time; None means half of the time between two runs.
    Timed(Option<Interval>),
}

/// Creates or updates this database's job. Returns a description of the result.
pub fn schedule(schedule: &str, job: Job, expire_function: &str) -> Result<String, Error> {
    let version = version_here(Some((schedule, job)), expire_function)?;
    let falls_back = falls_back(schedule, version);
    let effective = if falls_back { EVERY_MINUTE } else { schedule };
    call(
        c"SELECT cron.schedule($1, $2, $3)",
        &[
            &job_name(),
            effective,
            &command_at_home(&command(effective, job, expire_function), version),
        ],
    );
    let (major, minor) = version;
    Ok(match falls_back {
        false => format!("job \"{}\" runs on schedule \"{schedule}\"", job_name()),
        true => format!(
            "job \"{}\" runs every minute: pg_cron {major}.{minor} does not support schedules in seconds, which need version 1.5 or later",
            job_name()
        ),
    })
}

/// Returns whether this version of pg_cron does not support the schedule.
fn falls_back(schedule: &str, version: (u32, u32)) -> bool {
    let schedule = schedule.trim_end();
    let in_seconds = schedule.ends_with("seconds") || schedule.ends_with("second");
    in_seconds && version < SECONDS_SINCE
}

/// Removes this database's job. Returns a description of the result.
pub fn unschedule() -> Result<String, Error> {
    version_here(None, "")?;
    let there = query_once(
        c"SELECT 1 FROM cron.job WHERE jobname OPERATOR(pg_catalog.=) $1 \
          AND username OPERATOR(pg_catalog.=) CURRENT_USER",
        &[TEXTOID],
        &[text(&job_name())],
        |output| output.rows() > 0,
    );
    if !there {
        return Ok(format!("job \"{}\" does not exist", job_name()));
    }
    call(c"SELECT cron.unschedule($1)", &[&job_name()]);
    Ok(format!("job \"{}\" was removed", job_name()))
}

fn job_name() -> String {
    format!("pgcache expiry in {}", name::current_database())
}

/// Returns the command of a job. Every argument has an explicit type. Otherwise a role that may create functions in
/// the schema could create an overload without arguments, and the job would run that overload as the owner of the job.
fn command(schedule: &str, job: Job, expire_function: &str) -> String {
    match job {
        Job::Batch => {
            format!("SELECT {expire_function}(NULL::pg_catalog.regclass, {BATCH}::pg_catalog.int4)")
        }
        Job::Timed(max_time) => {
            let max_time = max_time.map_or_else(|| half_of(schedule), |time| iso_8601(&time));
            format!("SELECT * FROM pgcache.expire_for('{max_time}'::pg_catalog.interval)")
        }
    }
}

/// Returns half of the time between two runs. For a schedule in seconds, that is half of the seconds; for any other
/// schedule it is half a minute, because the shortest time between its runs is a minute.
fn half_of(schedule: &str) -> String {
    let seconds = schedule
        .trim()
        .strip_suffix("seconds")
        .or_else(|| schedule.trim().strip_suffix("second"))
        .and_then(|number| number.trim().parse::<u32>().ok());
    let millis = seconds.unwrap_or(60).clamp(1, 60) * 500;
    format!("PT{}.{:03}S", millis / 1000, millis % 1000)
}

/// Returns the command for the database that contains pg_cron's own tables. One run in a hundred also removes pg_cron's
/// records of the job's earlier runs. Otherwise a run every ten seconds would leave three million rows a year.
fn command_at_home(expire: &str, version: (u32, u32)) -> String {
    if version < RUN_DETAILS_SINCE {
        return expire.to_owned();
    }
    format!(
        "{expire}; DELETE FROM cron.job_run_details AS r USING cron.job AS j \
         WHERE (SELECT pg_catalog.random()) OPERATOR(pg_catalog.<) 0.01 \
         AND j.jobname OPERATOR(pg_catalog.=) {} AND r.jobid OPERATOR(pg_catalog.=) j.jobid \
         AND r.end_time OPERATOR(pg_catalog.<) (pg_catalog.now() OPERATOR(pg_catalog.-) \
         '1 day'::pg_catalog.interval)",
        name::quote_literal(&job_name())
    )
}

/// Returns the version of pg_cron that is installed in this database. Raises an error with the reason if pg_cron
/// cannot be used from this database.
fn version_here(schedule: Option<(&str, Job)>, expire_function: &str) -> Result<(u32, u32), Error> {
    let installed = setting(
        c"SELECT extversion FROM pg_catalog.pg_extension \
                              WHERE extname OPERATOR(pg_catalog.=) 'pg_cron'",
    );
    if let Some(version) = installed {
        return Ok(parse_version(&version));
    }
    let home = setting(c"SELECT pg_catalog.current_setting('cron.database_name', true)");
    match home {
        Some(home) if home != name::current_database() => Err(Error::CronElsewhere {
            command: command_elsewhere(schedule, expire_function),
            database: home,
        }),
        _ => Err(Error::NoCron),
    }
}

/// Returns the command with the same effect that the user can run in the database of pg_cron.
fn command_elsewhere(schedule: Option<(&str, Job)>, expire_function: &str) -> String {
    let quoted = name::quote_literal;
    let Some((schedule, job)) = schedule else {
        return format!("SELECT cron.unschedule({})", quoted(&job_name()));
    };
    let schedule = match falls_back(schedule, version_on_disk()) {
        true => EVERY_MINUTE,
        false => schedule,
    };
    format!(
        "SELECT cron.schedule_in_database({}, {}, {}, {})",
        quoted(&job_name()),
        quoted(schedule),
        quoted(&command(schedule, job, expire_function)),
        quoted(&name::current_database())
    )
}

/// Returns the version of pg_cron that this server has on disk, because the other database cannot be read from here.
fn version_on_disk() -> (u32, u32) {
    setting(
        c"SELECT default_version FROM pg_catalog.pg_available_extensions \
          WHERE name OPERATOR(pg_catalog.=) 'pg_cron'",
    )
    .map_or(SECONDS_SINCE, |version| parse_version(&version))
}

/// Parses a version: "1.4-1" is (1, 4).
fn parse_version(version: &str) -> (u32, u32) {
    let mut numbers = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn setting(sql: &CStr) -> Option<String> {
    query_once(sql, &[], &[], |output| {
        output.text(0, 0).map(Text::to_string_lossy)
    })
}

fn call(sql: &CStr, arguments: &[&str]) {
    let types = vec![TEXTOID; arguments.len()];
    let arguments: Vec<Typed> = arguments.iter().map(|argument| text(argument)).collect();
    query_once(sql, &types, &arguments, |_| ());
}

fn text(text: &str) -> Typed {
    Text::new(text.as_bytes()).into()
}
