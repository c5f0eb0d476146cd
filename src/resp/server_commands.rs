//! Commands on the connection and the server: those that are on no cache's entries.

use std::cell::Cell;
use std::time::Instant;

use pgcache_resp::{
    Args, Command, Entry, Failure, Hello, Protocol, TABLE, Writer, describe, describe_all,
    document, find, integer, matches_within,
};

use super::admission::{self, Step};
use super::session::Session;
use super::shared::Core;
use super::{client_commands, refusal, slow};
use crate::cache::catalog::registry::Cache;
use crate::guc::resp as settings;
use crate::pg::resp::board::Figure;
use crate::pg::resp::{desk, queue, slow_log};
use crate::pg::session::clock::{self, unix};
use crate::pg::shmem::tier::tier;

/// The version of Redis whose commands these are.
const VERSION: &str = "8.4.0";

/// Runs a command of these; None: it is none of them.
pub fn run(
    core: &mut Core,
    session: &mut Session,
    command: &Command<'_>,
    replies: &mut Writer,
) -> Option<Step> {
    match command {
        Command::Ping { message: None } => replies.simple("PONG"),
        Command::Ping {
            message: Some(message),
        }
        | Command::Echo { message } => replies.bulk(message),
        Command::Hello(hello) => return Some(greet(core, session, hello, replies)),
        Command::Auth { role, password } => {
            return Some(
                match admission::authenticate(core, session, *role, password, replies) {
                    Ok(()) => ok(replies),
                    Err(step) => step,
                },
            );
        }
        Command::Select { database } => select(core, session, *database, replies),
        Command::Quit => {
            replies.simple("OK");
            return Some(Step::Close);
        }
        Command::Reset => {
            core.log_out(session);
            core.tracking.end(session.id, session.tracking.as_deref());
            session.reset();
            replies.set_protocol(Protocol::Resp2);
            replies.simple("RESET");
        }
        Command::Time => {
            let (seconds, micros) = unix(clock::now());
            replies.array(2);
            replies.bulk_integer(seconds);
            replies.bulk_integer(micros);
        }
        Command::Other { entry, args } => {
            return other(core, session, entry, *args, replies);
        }
        _ => return None,
    }
    Some(Step::Done)
}

fn ok(replies: &mut Writer) -> Step {
    replies.simple("OK");
    Step::Done
}

fn greet(core: &mut Core, session: &mut Session, hello: &Hello<'_>, replies: &mut Writer) -> Step {
    if let Some((user, password)) = hello.auth
        && let Err(step) = admission::authenticate(core, session, Some(user), password, replies)
    {
        return step;
    }
    if session.role.is_none() {
        Failure::HelloNotAuthenticated.write(replies);
        return Step::Done;
    }
    if let Some(protocol) = hello.protocol {
        session.protocol = protocol;
        replies.set_protocol(protocol);
    }
    if let Some(name) = hello.name {
        session.name = name.into();
        session.changed = true;
    }
    let number = |protocol| match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    replies.map(7);
    replies.bulk(b"server");
    replies.bulk(b"redis");
    replies.bulk(b"version");
    replies.bulk(VERSION.as_bytes());
    replies.bulk(b"proto");
    replies.integer(number(session.protocol));
    replies.bulk(b"id");
    replies.integer(i64::try_from(session.id).unwrap_or(i64::MAX));
    replies.bulk(b"mode");
    replies.bulk(b"standalone");
    replies.bulk(b"role");
    replies.bulk(b"master");
    replies.bulk(b"modules");
    replies.array(0);
    Step::Done
}

fn select(core: &Core, session: &mut Session, database: i32, replies: &mut Writer) {
    match u32::try_from(database) {
        Ok(database) if (database as usize) < core.decisions.databases() => {
            if session.database != database {
                session.database = database;
                session.decided = None;
            }
            replies.simple("OK");
        }
        _ => Failure::NoSuchDatabase.write(replies),
    }
}

fn other(
    core: &mut Core,
    session: &mut Session,
    entry: &'static Entry,
    args: Args<'_>,
    replies: &mut Writer,
) -> Option<Step> {
    if entry.name.starts_with("client") {
        return Some(client_commands::run(core, session, entry, args, replies));
    }
    match entry.name {
        "acl|whoami" => replies.bulk(&session.user),
        "cluster" | "cluster|info" | "readonly" | "readwrite" => Failure::NoCluster.write(replies),
        "command" => describe_all(replies),
        "command|count" => replies.integer(i64::try_from(TABLE.len()).unwrap_or(i64::MAX)),
        "command|info" => info_of_commands(args.from(2), replies),
        "command|docs" => documents(args.from(2), replies),
        "command|list" => list_commands(args.from(2), replies),
        "command|getkeys" => keys_of(args.from(2), replies),
        "config|get" => get_settings(core, args.from(2), replies),
        "config|resetstat" => match admission::powers(core, session) {
            Ok(powers) if powers.signals || powers.owns => {
                core.show_figures();
                core.board.reset();
                replies.simple("OK");
            }
            Ok(_) => refusal::no_power(entry.name, &session.user, replies),
            Err(step) => return Some(step),
        },
        "info" => {
            core.show_figures();
            let text = info(core, session, args.from(1));
            replies.text(text.as_bytes());
        }
        "lastsave" => replies.integer(unix(core.began_at).0),
        "wait" => wait(args, replies),
        _ if slow::latency(entry, args, replies) => {}
        _ if entry.last_name() == "help" => help(entry, replies),
        _ => return slow::log(core, session, entry, args, replies),
    }
    Some(Step::Done)
}

/// Nobody is behind: there are no replicas to wait for.
fn wait(args: Args<'_>, replies: &mut Writer) {
    match (args.get(1).and_then(integer), args.get(2).and_then(integer)) {
        (Some(_), Some(timeout)) if timeout < 0 => replies.error(&[b"ERR timeout is negative"]),
        (Some(_), Some(_)) => replies.integer(0),
        (Some(_), None) => replies.error(&[b"ERR timeout is not an integer or out of range"]),
        _ => Failure::NotInteger.write(replies),
    }
}

/// The commands of a command, in the form of Redis' HELP.
fn help(entry: &'static Entry, replies: &mut Writer) {
    if let Some(lines) = slow::help(entry) {
        replies.array(lines.len());
        return lines.iter().for_each(|line| replies.simple(line));
    }
    let command = entry.name.split('|').next().unwrap_or_default();
    let inner = find(command.as_bytes()).map_or(&[][..], |entry| entry.subcommands);
    let head = format!(
        "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        command.to_ascii_uppercase()
    );
    replies.array(1 + inner.len());
    replies.simple(&head);
    for entry in inner {
        replies.simple(&entry.last_name().to_ascii_uppercase());
    }
}

/// The entry of a command, or of `command|subcommand`.
fn named(name: &[u8]) -> Option<&'static Entry> {
    let mut parts = name.splitn(2, |&byte| byte == b'|');
    let entry = find(parts.next().unwrap_or_default())?;
    match parts.next() {
        None => Some(entry),
        Some(inner) => entry.subcommand(inner),
    }
}

/// Names that COMMAND INFO and COMMAND DOCS take at once: many times as many as there are commands.
const MOST_DESCRIBED: usize = 4096;

/// Whether these are too many, which is replied then.
fn are_too_many(names: Args<'_>, replies: &mut Writer) -> bool {
    let too_many = names.len() > MOST_DESCRIBED;
    if too_many {
        replies.error(&[b"ERR at most 4096 commands can be described at once"]);
    }
    too_many
}

fn info_of_commands(names: Args<'_>, replies: &mut Writer) {
    if names.is_empty() {
        return describe_all(replies);
    }
    if are_too_many(names, replies) {
        return;
    }
    replies.array(names.len());
    for name in names.iter() {
        match named(name) {
            Some(entry) => describe(entry, replies),
            None => replies.null_array(),
        }
    }
}

fn documents(names: Args<'_>, replies: &mut Writer) {
    if names.is_empty() {
        replies.map(TABLE.len());
        return TABLE.iter().for_each(|entry| document(entry, replies));
    }
    if are_too_many(names, replies) {
        return;
    }
    let known = || names.iter().filter_map(named);
    replies.map(known().count());
    known().for_each(|entry| document(entry, replies));
}

/// Bytes that the comparisons of one command with names read; the rest then does not match.
const LOOKS: usize = 1 << 20;

/// Whether a pattern stands for the name of a command, or of a setting.
fn is_named(pattern: &[u8], name: &str, looks: &Cell<usize>) -> bool {
    let mut left = looks.get();
    let matched = matches_within(pattern, name.as_bytes(), &mut left);
    looks.set(left);
    matched.unwrap_or(false)
}

fn list_commands(options: Args<'_>, replies: &mut Writer) {
    let is = |at: usize, word: &str| {
        options
            .get(at)
            .is_some_and(|option| option.eq_ignore_ascii_case(word.as_bytes()))
    };
    let filter: Box<dyn Fn(&Entry) -> bool> = match options.len() {
        0 => Box::new(|_| true),
        3 if is(0, "filterby") && is(1, "pattern") => {
            let pattern = options.get(2).unwrap_or_default();
            let looks = Cell::new(LOOKS);
            Box::new(move |entry| is_named(pattern, entry.name, &looks))
        }
        3 if is(0, "filterby") && (is(1, "module") || is(1, "aclcat")) => Box::new(|_| false),
        _ => return Failure::Syntax.write(replies),
    };
    let listed: Vec<&Entry> = TABLE.iter().filter(|entry| filter(entry)).collect();
    replies.array(listed.len());
    listed
        .iter()
        .for_each(|entry| replies.bulk(entry.name.as_bytes()));
}

fn keys_of(args: Args<'_>, replies: &mut Writer) {
    let entry = match Command::check(args) {
        Ok(entry) => entry,
        Err(Failure::UnknownCommand(_)) => {
            return replies.error(&[b"ERR Invalid command specified"]);
        }
        Err(_) => {
            return replies.error(&[b"ERR Invalid number of arguments specified for command"]);
        }
    };
    let counted = |count: usize, first: usize, step: usize| {
        let count = args
            .get(count)
            .and_then(integer)
            .and_then(|count| usize::try_from(count).ok());
        let places = (first..args.len()).step_by(step).take(count.unwrap_or(0));
        places.collect::<Vec<_>>()
    };
    let places = match entry.name {
        "eval" | "evalsha" => counted(2, 3, 1),
        "msetex" => counted(1, 2, 2),
        _ => entry.key_places(args.len()).collect(),
    };
    if places.is_empty() {
        return replies.error(&[b"ERR The command has no key arguments"]);
    }
    replies.array(places.len());
    for place in places {
        replies.bulk(args.get(place).unwrap_or_default());
    }
}

/// What CONFIG GET knows: what programs ask for, as it is here.
fn config(core: &Core) -> Vec<(&'static str, String)> {
    let seconds = |time: Option<std::time::Duration>| time.map_or(0, |time| time.as_secs());
    let micros = |time: std::time::Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let hot_size = crate::guc::hot_size();
    vec![
        ("appendonly", "no".into()),
        ("databases", core.decisions.databases().to_string()),
        ("maxclients", core.limits.clients.to_string()),
        ("maxmemory", hot_size.to_string()),
        (
            "maxmemory-clients",
            settings::max_clients_memory().unwrap_or(0).to_string(),
        ),
        ("maxmemory-policy", "allkeys-lfu".into()),
        ("notify-keyspace-events", String::new()),
        ("port", settings::port().unwrap_or(0).to_string()),
        ("proto-max-bulk-len", core.limits.request.to_string()),
        ("save", String::new()),
        (
            "slowlog-log-slower-than",
            settings::slower_than().map_or(-1, micros).to_string(),
        ),
        ("slowlog-max-len", slow_log::ENTRIES.to_string()),
        ("tcp-keepalive", seconds(settings::keepalive()).to_string()),
        ("timeout", seconds(core.limits.idle).to_string()),
        ("unixsocket", settings::socket().unwrap_or_default()),
    ]
}

fn get_settings(core: &Core, patterns: Args<'_>, replies: &mut Writer) {
    let config = config(core);
    let looks = Cell::new(LOOKS);
    let patterns: Vec<_> = patterns.iter().map(<[u8]>::to_ascii_lowercase).collect();
    let asked = |name: &str| {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| is_named(pattern, name, &looks))
    };
    let found: Vec<_> = config.iter().filter(|(name, _)| asked(name)).collect();
    replies.map(found.len());
    for (name, value) in found {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
}

/// Sections of INFO that are asked for by name only.
const SECTIONS: [&str; 9] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "cluster",
    "keyspace",
];

/// INFO, in Redis' form.
fn info(core: &Core, session: &Session, asked: Args<'_>) -> String {
    let is = |option: &[u8], word: &str| option.eq_ignore_ascii_case(word.as_bytes());
    let all = |option: &[u8]| {
        ["all", "default", "everything"]
            .iter()
            .any(|word| is(option, word))
    };
    let wanted = |section: &str| {
        asked.is_empty()
            || asked
                .iter()
                .any(|option| all(option) || is(option, section))
    };
    let mut text = String::new();
    for section in SECTIONS.into_iter().filter(|section| wanted(section)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut name = section.to_owned();
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        text.push_str(&format!(
            "# {}\r\n",
            if section == "cpu" { "CPU" } else { &name }
        ));
        for (name, value) in section_of(core, session, section) {
            text.push_str(&format!("{name}:{value}\r\n"));
        }
    }
    text
}

fn section_of(core: &Core, session: &Session, section: &str) -> Vec<(String, String)> {
    let uptime = Instant::now()
        .saturating_duration_since(core.began)
        .as_secs();
    let figures = core.board.figures();
    let counted = |figure: Figure| figures.get(figure as usize).copied().unwrap_or(0);
    let told = |figure: Figure| counted(figure).to_string();
    let lines: Vec<(&str, String)> = match section {
        "server" => vec![
            ("redis_version", VERSION.into()),
            ("pgcache_version", env!("CARGO_PKG_VERSION").into()),
            ("redis_mode", "standalone".into()),
            ("os", std::env::consts::OS.into()),
            ("arch_bits", usize::BITS.to_string()),
            ("process_id", std::process::id().to_string()),
            ("tcp_port", settings::port().unwrap_or(0).to_string()),
            ("uptime_in_seconds", uptime.to_string()),
            ("uptime_in_days", (uptime / 86_400).to_string()),
        ],
        "clients" => vec![
            // The one who asks is taken out while it is served, and still counted.
            ("connected_clients", core.board.now().clients.to_string()),
            ("maxclients", core.limits.clients.to_string()),
            ("blocked_clients", "0".into()),
            (
                "mem_clients_normal",
                core.board.clients_memory().to_string(),
            ),
            ("tracking_clients", core.board.now().tracking.to_string()),
            (
                "total_tracking_keys",
                core.board.now().tracked_keys.to_string(),
            ),
        ],
        "memory" => vec![
            ("used_memory", used().to_string()),
            ("maxmemory", crate::guc::hot_size().to_string()),
            ("maxmemory_policy", "allkeys-lfu".into()),
        ],
        "persistence" => vec![
            ("loading", "0".into()),
            ("async_loading", "0".into()),
            ("rdb_bgsave_in_progress", "0".into()),
            ("aof_enabled", "0".into()),
        ],
        "stats" => vec![
            ("total_connections_received", told(Figure::Connections)),
            ("total_commands_processed", told(Figure::Commands)),
            ("total_net_input_bytes", told(Figure::Input)),
            ("total_net_output_bytes", told(Figure::Output)),
            ("rejected_connections", told(Figure::Rejected)),
            ("keyspace_hits", told(Figure::Hits)),
            ("keyspace_misses", told(Figure::Misses)),
            ("evicted_clients", told(Figure::Evicted)),
            (
                "client_output_buffer_limit_disconnections",
                told(Figure::CutOff),
            ),
            (
                "pgcache_queue_depth",
                (queue::depth() + desk::depth()).to_string(),
            ),
            (
                "acl_access_denied_auth",
                told(Figure::FailedAuthentications),
            ),
        ],
        "replication" => vec![("role", "master".into()), ("connected_slaves", "0".into())],
        "cluster" => vec![("cluster_enabled", "0".into())],
        "keyspace" => {
            let decided = session
                .decided
                .as_ref()
                .filter(|decided| decided.holds() && decided.target.rights.select);
            let entries = decided.map_or(0, |decided| entries(&decided.target.cache));
            if entries <= 0 {
                return Vec::new();
            }
            let name = format!("db{}", session.database);
            return vec![(name, format!("keys={entries},expires=0,avg_ttl=0"))];
        }
        _ => Vec::new(),
    };
    lines
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Bytes of the tier.
fn used() -> usize {
    tier().map_or(0, |tier| tier.size())
}

/// Entries of a memory cache, expired ones among them that nobody has removed.
fn entries(cache: &Cache) -> i64 {
    let slot = tier().and_then(|tier| Some((tier, cache.slot(tier)?)));
    slot.map_or(0, |(tier, slot)| {
        tier.slot(slot)
            .entries
            .load(std::sync::atomic::Ordering::Relaxed)
    })
}
