//! Runs SLOWLOG and LATENCY, and records slow commands. LATENCY replies as if no event were monitored.
//!
//! Reading the clock for each command would cost a few percent of a GET. So the clock is read only after commands that
//! may take long, because of their kind, or because the request or the replies are long. The last reading of the clock
//! in the client's turn counts as the start of the command.

use std::time::{Duration, Instant};

use pgcache_resp::{Args, Entry, Writer, integer, known_name};

use crate::pg::resp::slow_log::{self, Slow};
use crate::pg::session::clock;
use crate::resp::server::errors;
use crate::resp::session::progress::Progress;
use crate::resp::session::{Session, Waits, printable};
use crate::resp::shared::Core;
use crate::resp::shared::client_permissions;

/// The number of bytes above which a request, or its replies, may take long.
const LONG: usize = 4 << 10;
/// The number of entries that SLOWLOG GET returns by default.
const FEW: i64 = 10;

/// Marks a command as unfinished, because it will run again or continue. Does not mark a command that CLIENT PAUSE
/// holds back, because it has not begun.
pub fn goes_on(session: &mut Session, since: Instant) {
    if session.waits != Waits::Pause && session.activity.under_way.is_none() {
        session.activity.under_way = Some(since);
    }
}

/// Records that a command has finished. `bytes` is the length of its request and reply, `since` a time before its
/// start. Returns a time before the start of the next command.
#[inline]
pub fn done(core: &Core, session: &mut Session, bytes: usize, since: Instant) -> Instant {
    let all = core.limits.slow == Some(Duration::ZERO);
    match session.activity.under_way.is_some() || session.activity.heavy || bytes > LONG || all {
        true => measured(core, session, since),
        false => since,
    }
}

#[cold]
fn measured(core: &Core, session: &mut Session, since: Instant) -> Instant {
    let since = session.activity.under_way.take().unwrap_or(since);
    let now = Instant::now();
    let took = now.saturating_duration_since(since);
    if core.limits.slow.is_some_and(|least| took >= least) {
        slow_log::add(&Slow {
            at: clock::now(),
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            role: session.login.role.map_or(0, |role| role.to_u32()),
            command: known_name(session.last_name()).as_bytes(),
            address: session.origin.address.as_bytes(),
            client: &session.labels.name,
        });
    }
    now
}

/// Runs a subcommand of SLOWLOG.
pub fn log(
    core: &mut Core,
    session: &mut Session,
    entry: &'static Entry,
    args: Args<'_>,
    replies: &mut Writer,
) -> Progress {
    let privileges = match client_permissions::privileges(core, session) {
        Ok(privileges) => privileges,
        Err(step) => return step,
    };
    let role = session.login.role.map_or(0, |role| role.to_u32());
    let seen = |slow: &Slow<Vec<u8>>| privileges.monitors || slow.role == role;
    let entries = || slow_log::entries().filter(|(_, slow)| seen(slow));
    match entry.last_name() {
        "reset" if privileges.signals || privileges.owns => {
            slow_log::reset();
            replies.simple("OK");
        }
        "reset" => errors::no_power(entry.name, &session.login.user, replies),
        "len" => replies.integer(entries().count() as i64),
        _ => get(args.from(2), entries(), replies),
    }
    Progress::Done
}

fn get(
    options: Args<'_>,
    entries: impl Iterator<Item = (u64, Slow<Vec<u8>>)>,
    replies: &mut Writer,
) {
    let count = match (options.len(), options.get(0).and_then(integer)) {
        (0, _) => FEW,
        (1, Some(-1)) => i64::MAX,
        (1, Some(count)) if count >= 0 => count,
        (1, _) => {
            return replies.error(&[b"ERR count should be greater than or equal to -1"]);
        }
        _ => {
            return replies.error(&[
                b"ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
            ]);
        }
    };
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let entries: Vec<_> = entries.take(most).collect();
    replies.array(entries.len());
    for (number, slow) in &entries {
        replies.array(6);
        replies.integer(*number as i64);
        replies.integer(clock::unix(slow.at).0);
        replies.integer(i64::try_from(slow.micros).unwrap_or(i64::MAX));
        replies.array(1);
        replies.bulk(&slow.command);
        replies.bulk(printable(&slow.address).as_bytes());
        replies.bulk(printable(&slow.client).as_bytes());
    }
}

/// Runs a subcommand of LATENCY, which replies as Redis does when it monitors no event. Returns false for any other
/// command.
pub fn latency(entry: &'static Entry, args: Args<'_>, replies: &mut Writer) -> bool {
    match entry.name {
        "latency|history" | "latency|latest" => replies.array(0),
        "latency|reset" => replies.integer(0),
        "latency|histogram" => replies.map(0),
        "latency|doctor" => replies.text(
            b"I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use \"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it. If we weren't in a deep space mission I'd suggest to take a look at https://redis.io/topics/latency-monitor.\n",
        ),
        "latency|graph" => replies.error(&[
            b"ERR No samples available for event '",
            args.get(2).unwrap_or_default(),
            b"'",
        ]),
        _ => return false,
    }
    true
}

/// Returns the lines of SLOWLOG HELP and of LATENCY HELP, as in Redis.
pub fn help(entry: &'static Entry) -> Option<&'static [&'static str]> {
    match entry.name {
        "slowlog|help" => Some(&[
            "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "GET [<count>]",
            "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
            "    Entries are made of:",
            "    id, timestamp, time in microseconds, arguments array, client IP and port,",
            "    client name",
            "LEN",
            "    Return the length of the slowlog.",
            "RESET",
            "    Reset the slowlog.",
            "HELP",
            "    Prints this help.",
        ]),
        "latency|help" => Some(&[
            "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "DOCTOR",
            "    Return a human readable latency analysis report.",
            "GRAPH <event>",
            "    Return an ASCII latency graph for the <event> class.",
            "HISTORY <event>",
            "    Return time-latency samples for the <event> class.",
            "LATEST",
            "    Return the latest latency samples for all events.",
            "RESET [<event> ...]",
            "    Reset latency data of one or more <event> classes.",
            "    (default: reset all data for all event classes)",
            "HISTOGRAM [COMMAND ...]",
            "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
            "    If no commands are specified then all histograms are replied.",
            "HELP",
            "    Prints this help.",
        ]),
        _ => None,
    }
}
