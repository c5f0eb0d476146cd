//! Runs commands about the connection and the server, such as HELLO, SELECT, CONFIG and COMMAND. Commands on entries
//! are in `commands`.

mod client;
pub mod errors;
mod info;
pub mod slow_commands;
mod tracking_commands;

use std::cell::Cell;

use pgcache_resp::{
    Args, Command, Entry, Failure, Hello, Parsed, Protocol, TABLE, Writer, describe, describe_all,
    document, find, flag, integer, is_of_category, matches_within, named,
};

use self::info::VERSION;
use crate::guc::resp as settings;
use crate::pg::session as pg_session;
use crate::pg::session::clock::{self, unix};
use crate::resp::commands;
use crate::resp::session::Session;
use crate::resp::session::progress::Progress;
use crate::resp::shared::Core;
use crate::resp::shared::client_permissions;

/// Runs a command on the connection or the server.
pub fn run(
    core: &mut Core,
    session: &mut Session,
    command: &Parsed<'_>,
    replies: &mut Writer,
) -> Progress {
    match &command.command {
        Command::Ping { message } => commands::pong(*message, replies),
        Command::Echo { message } => commands::pong(Some(message), replies),
        Command::Hello(hello) => return greet(core, session, hello, replies),
        Command::Auth { role, password } => {
            return match client_permissions::authenticate(core, session, *role, password, replies) {
                Ok(()) => ok(replies),
                Err(step) => step,
            };
        }
        Command::Select { database } => select(core, session, *database, replies),
        Command::Quit => {
            replies.simple("OK");
            return Progress::Close;
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
        _ => return other(core, session, command.entry, command.args, replies),
    }
    Progress::Done
}

fn ok(replies: &mut Writer) -> Progress {
    replies.simple("OK");
    Progress::Done
}

fn greet(
    core: &mut Core,
    session: &mut Session,
    hello: &Hello<'_>,
    replies: &mut Writer,
) -> Progress {
    if let Some((user, password)) = hello.auth
        && let Err(step) =
            client_permissions::authenticate(core, session, Some(user), password, replies)
    {
        return step;
    }
    if session.login.role.is_none() {
        Failure::HelloNotAuthenticated.write(replies);
        return Progress::Done;
    }
    if let Some(protocol) = hello.protocol {
        session.protocol = protocol;
        replies.set_protocol(protocol);
    }
    if let Some(name) = hello.name {
        session.labels.name = name.into();
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
    replies.bulk(match pg_session::in_recovery() {
        true => b"replica",
        false => b"master",
    });
    replies.bulk(b"modules");
    replies.array(0);
    Progress::Done
}

fn select(core: &Core, session: &mut Session, database: i32, replies: &mut Writer) {
    match u32::try_from(database) {
        Ok(database) if (database as usize) < core.catalog.permissions.databases() => {
            if session.database != database {
                session.database = database;
                session.permission = None;
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
) -> Progress {
    if entry.name.starts_with("client") {
        return client::run(core, session, entry, args, replies);
    }
    match entry.name {
        "acl|whoami" => replies.bulk(&session.login.user),
        "asking" | "readonly" | "readwrite" => Failure::NoCluster.write(replies),
        name if name.starts_with("cluster|") && name != "cluster|help" => {
            Failure::NoCluster.write(replies);
        }
        "command" => describe_all(replies),
        "command|count" => replies.integer(i64::try_from(TABLE.len()).unwrap_or(i64::MAX)),
        "command|info" => info_of_commands(args.from(2), replies),
        "command|docs" => documents(args.from(2), replies),
        "command|list" => list_commands(args.from(2), replies),
        "command|getkeys" => keys_of(args.from(2), replies),
        "config|get" => get_settings(core, args.from(2), replies),
        "config|resetstat" => match client_permissions::privileges(core, session) {
            Ok(privileges) if privileges.signals || privileges.owns => {
                core.show_figures();
                core.registry.reset();
                replies.simple("OK");
            }
            Ok(_) => errors::no_power(entry.name, &session.login.user, replies),
            Err(step) => return step,
        },
        "info" => return info::run(core, session, args.from(1), replies),
        "lastsave" => replies.integer(unix(core.began_at).0),
        "wait" => wait(args, replies),
        _ if slow_commands::latency(entry, args, replies) => {}
        _ if entry.last_name() == "help" => help(entry, replies),
        "slowlog|get" | "slowlog|len" | "slowlog|reset" => {
            return slow_commands::log(core, session, entry, args, replies);
        }
        _ => errors::unsupported(entry.name, replies),
    }
    Progress::Done
}

/// Runs WAIT, which returns 0 at once, because the protocol has no replicas to wait for.
fn wait(args: Args<'_>, replies: &mut Writer) {
    match (args.get(1).and_then(integer), args.get(2).and_then(integer)) {
        (Some(_), Some(timeout)) if timeout < 0 => replies.error(&[b"ERR timeout is negative"]),
        (Some(_), Some(_)) => replies.integer(0),
        (Some(_), None) => replies.error(&[b"ERR timeout is not an integer or out of range"]),
        _ => Failure::NotInteger.write(replies),
    }
}

/// Writes the subcommands of a command, in the format of Redis' HELP.
fn help(entry: &'static Entry, replies: &mut Writer) {
    if let Some(lines) = slow_commands::help(entry) {
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

/// The maximum number of names in one COMMAND INFO or COMMAND DOCS. There are far fewer commands.
const MOST_DESCRIBED: usize = 4096;

/// Returns whether the command has too many names, and if it has, writes the error.
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

/// The number of bytes that one command may compare when it matches names with a pattern. After that, no further name
/// matches.
const LOOKS: usize = 1 << 20;

/// Returns whether a pattern matches the name of a command or of a setting.
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
        3 if is(0, "filterby") && is(1, "aclcat") => {
            let category = options.get(2).unwrap_or_default();
            Box::new(move |entry| is_of_category(entry, category))
        }
        3 if is(0, "filterby") && is(1, "module") => Box::new(|_| false),
        _ => return Failure::Syntax.write(replies),
    };
    let all = TABLE
        .iter()
        .flat_map(|entry| std::iter::once(entry).chain(entry.subcommands));
    let listed: Vec<&Entry> = all.filter(|entry| filter(entry)).collect();
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
    let keys: Vec<&[u8]> = entry.keys(args).collect();
    // Redis returns an empty list for a script without keys.
    if keys.is_empty() && entry.flags & flag::NO_MANDATORY_KEYS == 0 {
        return replies.error(&[b"ERR The command has no key arguments"]);
    }
    replies.array(keys.len());
    keys.iter().for_each(|key| replies.bulk(key));
}

/// Returns the settings that CONFIG GET shows, with their values. Client programs read these settings.
fn config(core: &Core) -> Vec<(&'static str, String)> {
    let seconds = |time: Option<std::time::Duration>| time.map_or(0, |time| time.as_secs());
    let micros = |time: std::time::Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let hot_size = crate::guc::hot_size();
    vec![
        ("appendonly", "no".into()),
        (
            "databases",
            core.catalog.permissions.databases().to_string(),
        ),
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
        (
            "slowlog-max-len",
            crate::pg::resp::slow_log::ENTRIES.to_string(),
        ),
        ("tcp-keepalive", seconds(settings::keepalive()).to_string()),
        ("timeout", seconds(core.limits.idle).to_string()),
        ("unixsocket", settings::socket().unwrap_or_default()),
    ]
}

fn get_settings(core: &Core, patterns: Args<'_>, replies: &mut Writer) {
    let config = config(core);
    let looks = Cell::new(LOOKS);
    let patterns: Vec<_> = patterns.iter().map(<[u8]>::to_ascii_lowercase).collect();
    let is_selected = |name: &str| {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| is_named(pattern, name, &looks))
    };
    let found: Vec<_> = config
        .iter()
        .filter(|(name, _)| is_selected(name))
        .collect();
    replies.map(found.len());
    for (name, value) in found {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
}
