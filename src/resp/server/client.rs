//! Runs the subcommands of CLIENT, except those of tracking (`tracking_commands`).
//!
//! A client sees only clients of its own role, unless its role is a member of pg_monitor. A client disconnects only
//! clients of its own role, unless its role is a superuser, or is a member of pg_signal_backend and the other client's
//! role is not a superuser. Otherwise a role could watch or disconnect the clients of another role.

use pgcache_resp::{Args, Entry, Failure, Writer, check_client_name, integer};

use crate::pg::resp::client_registry::Shown;
use crate::pg::session::clock::{self, Timestamp};
use crate::resp::auth::ServerPrivileges;
use crate::resp::server::errors;
use crate::resp::server::tracking_commands;
use crate::resp::session::pauses;
use crate::resp::session::progress::Progress;
use crate::resp::session::{Replies, Session};
use crate::resp::shared::Core;
use crate::resp::shared::client_list;
use crate::resp::shared::client_permissions;

/// Runs a subcommand of CLIENT.
pub fn run(
    core: &mut Core,
    session: &mut Session,
    entry: &'static Entry,
    args: Args<'_>,
    replies: &mut Writer,
) -> Progress {
    let option = args.get(2).unwrap_or_default();
    let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
    match entry.last_name() {
        "id" => replies.integer(i64::try_from(session.id).unwrap_or(i64::MAX)),
        "getname" => {
            let name = Some(&*session.labels.name).filter(|name| !name.is_empty());
            replies.bulk_or_null(name);
        }
        "setname" => match check_client_name(option) {
            Ok(()) => {
                session.labels.name = option.into();
                session.changed = true;
                replies.simple("OK");
            }
            Err(failure) => failure.write(replies),
        },
        "setinfo" => set_info(session, option, args.get(3).unwrap_or_default(), replies),
        "info" => {
            core.show_session(session, 0, 0);
            let own = |(_, other): &(u32, Shown)| other.id == session.id;
            let own = core.registry.clients().find(own);
            let line = own.map_or_else(String::new, |(_, own)| {
                client_list::line(&own, clock::now())
            });
            replies.text(format!("{line}\n").as_bytes());
        }
        "list" => return list(core, session, args.from(2), replies),
        "kill" => return kill(core, session, args.from(2), replies),
        "pause" | "unpause" => {
            match client_permissions::privileges(core, session) {
                Ok(privileges) if !(privileges.signals || privileges.owns) => {
                    errors::no_power(entry.name, &session.login.user, replies);
                }
                Ok(_) if entry.last_name() == "pause" => {
                    pauses::begin(&core.registry, args.from(2), replies);
                }
                Ok(_) => pauses::end(&core.registry, replies),
                Err(step) => return step,
            }
            // Clients that the previous pause held resume now; a new pause holds the commands that arrive after it.
            core.look_at_pause();
        }
        "no-evict" | "no-touch" if is("on") || is("off") => {
            match entry.last_name() {
                "no-evict" => session.no_evict = is("on"),
                _ => session.no_touch = is("on"),
            }
            replies.simple("OK");
        }
        "no-evict" | "no-touch" => Failure::Syntax.write(replies),
        "reply" if is("on") => {
            session.replies = Replies::On;
            replies.simple("OK");
        }
        "reply" if is("off") => session.replies = Replies::Off,
        "reply" if is("skip") => {
            if session.replies != Replies::Off {
                session.replies = Replies::SkipNext;
            }
        }
        "reply" => Failure::Syntax.write(replies),
        "tracking" | "caching" | "getredir" | "trackinginfo" => {
            return tracking_commands::run(core, session, entry, args, replies);
        }
        "help" => {
            replies.array(1);
            replies.simple("CLIENT <subcommand> [<arg> [value] [opt] ...].");
        }
        _ => errors::unsupported(entry.name, replies),
    }
    Progress::Done
}

fn set_info(session: &mut Session, attribute: &[u8], value: &[u8], replies: &mut Writer) {
    let is = |word: &str| attribute.eq_ignore_ascii_case(word.as_bytes());
    let (name, field) = match () {
        () if is("lib-name") => ("lib-name", &mut session.labels.library),
        () if is("lib-ver") => ("lib-ver", &mut session.labels.library_version),
        () => {
            return replies.error(&[b"ERR Unrecognized option '", attribute, b"'"]);
        }
    };
    match check_client_name(value) {
        Ok(()) => {}
        Err(Failure::ClientName) => {
            return replies.error(&[
                b"ERR ",
                name.as_bytes(),
                b" cannot contain spaces, newlines or special characters.",
            ]);
        }
        Err(failure) => return failure.write(replies),
    }
    *field = value.into();
    session.changed = true;
    replies.simple("OK");
}

/// Lists the clients of the same role, or of all roles for a member of pg_monitor.
fn list(
    core: &mut Core,
    session: &mut Session,
    options: Args<'_>,
    replies: &mut Writer,
) -> Progress {
    let privileges = match client_permissions::privileges(core, session) {
        Ok(privileges) => privileges,
        Err(step) => return step,
    };
    let is = |at: usize, word: &str| {
        options
            .get(at)
            .is_some_and(|option| option.eq_ignore_ascii_case(word.as_bytes()))
    };
    let mut ids: Option<Vec<i64>> = None;
    let mut shows: fn(&Shown) -> bool = |_| true;
    match options.len() {
        0 => {}
        2 if is(0, "type")
            && (is(1, "normal")
                || is(1, "pubsub")
                || is_replication(options.get(1).unwrap_or_default())) =>
        {
            let (normal, pubsub) = (is(1, "normal"), is(1, "pubsub"));
            shows = match (normal, pubsub) {
                (true, _) => |shown: &Shown| !reads_channels(shown),
                (_, true) => reads_channels,
                _ => |_: &Shown| false,
            };
        }
        2 if is(0, "type") => {
            write_unknown_type(options.get(1).unwrap_or_default(), replies);
            return Progress::Done;
        }
        length if length > 1 && is(0, "id") => {
            let parsed: Option<Vec<i64>> = options.from(1).iter().map(integer).collect();
            match parsed {
                Some(mut parsed) => {
                    parsed.sort_unstable();
                    ids = Some(parsed);
                }
                None => {
                    replies.error(&[b"ERR Invalid client ID"]);
                    return Progress::Done;
                }
            }
        }
        _ => {
            Failure::Syntax.write(replies);
            return Progress::Done;
        }
    }
    core.show_session(session, 0, 0);
    let listed = |shown: &Shown| {
        let id = i64::try_from(shown.id).unwrap_or(i64::MAX);
        (privileges.monitors || is_own(session, shown))
            && shows(shown)
            && ids
                .as_ref()
                .is_none_or(|ids| ids.binary_search(&id).is_ok())
    };
    let clients = core.registry.clients().map(|(_, shown)| shown);
    let mut clients: Vec<Shown> = clients.filter(listed).collect();
    clients.sort_unstable_by_key(|shown| shown.id);
    let now = clock::now();
    let mut text = String::new();
    for shown in &clients {
        text.push_str(&client_list::line(shown, now));
        text.push('\n');
    }
    replies.text(text.as_bytes());
    Progress::Done
}

fn reads_channels(shown: &Shown) -> bool {
    shown.channels + shown.patterns > 0
}

/// Returns whether the other client has the session's role.
fn is_own(session: &Session, shown: &Shown) -> bool {
    session
        .login
        .role
        .is_some_and(|role| role.to_u32() == shown.role)
}

/// The clients that CLIENT KILL selects.
#[derive(Default)]
struct Filter<'a> {
    id: Option<i64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    kind: Option<fn(&Shown) -> bool>,
    longest_age: Option<i64>,
    includes_self: bool,
}

/// Why the options of CLIENT KILL cannot be applied: an error, or a check that an executor has not yet answered.
enum Wrong<'a> {
    Redis(Failure<'a>),
    Words(&'static str),
    Type(&'a [u8]),
    User(&'a [u8]),
    /// It is unknown whether the user exists, because an executor has yet to check it.
    Unknown(Progress),
}

/// Returns whether this is a type of client that exists only with Redis' replication.
fn is_replication(kind: &[u8]) -> bool {
    let kinds: [&[u8]; 3] = [b"replica", b"slave", b"master"];
    kinds.iter().any(|name| kind.eq_ignore_ascii_case(name))
}

fn write_unknown_type(kind: &[u8], replies: &mut Writer) {
    replies.error(&[b"ERR Unknown client type '", kind, b"'"]);
}

impl<'a> Filter<'a> {
    /// Reads the options. Writes the error if they are wrong.
    fn read(
        options: Args<'a>,
        is_user: impl FnMut(&[u8]) -> Result<bool, Progress>,
        replies: &mut Writer,
    ) -> Result<Filter<'a>, Progress> {
        match Filter::parse(options, is_user) {
            Ok(filter) => return Ok(filter),
            Err(Wrong::Unknown(step)) => return Err(step),
            Err(Wrong::Redis(failure)) => failure.write(replies),
            Err(Wrong::Words(words)) => replies.error(&[b"ERR ", words.as_bytes()]),
            Err(Wrong::Type(kind)) => write_unknown_type(kind, replies),
            Err(Wrong::User(name)) => replies.error(&[b"ERR No such user '", name, b"'"]),
        }
        Err(Progress::Done)
    }

    fn parse(
        options: Args<'a>,
        mut is_user: impl FnMut(&[u8]) -> Result<bool, Progress>,
    ) -> Result<Filter<'a>, Wrong<'a>> {
        let mut filter = Filter::default();
        let mut left = options;
        while let (Some(option), Some(value)) = (left.get(0), left.get(1)) {
            let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
            let yes = value.eq_ignore_ascii_case(b"yes");
            match () {
                () if is("id") => {
                    let id = integer(value).filter(|id| *id > 0);
                    let words = "client-id should be greater than 0";
                    filter.id = Some(id.ok_or(Wrong::Words(words))?);
                }
                () if is("addr") => filter.address = Some(value),
                () if is("laddr") => filter.local_address = Some(value),
                () if is("user") => match is_user(value) {
                    Ok(true) => filter.user = Some(value),
                    Ok(false) => return Err(Wrong::User(value)),
                    Err(step) => return Err(Wrong::Unknown(step)),
                },
                () if is("type") && value.eq_ignore_ascii_case(b"normal") => {
                    filter.kind = Some(|shown| !reads_channels(shown));
                }
                () if is("type") && value.eq_ignore_ascii_case(b"pubsub") => {
                    filter.kind = Some(reads_channels);
                }
                () if is("type") && is_replication(value) => filter.kind = Some(|_| false),
                () if is("type") => return Err(Wrong::Type(value)),
                () if is("maxage") => {
                    let words = "maxage is not an integer or out of range";
                    let age = integer(value).ok_or(Wrong::Words(words))?;
                    if age <= 0 {
                        return Err(Wrong::Words("maxage should be greater than 0"));
                    }
                    filter.longest_age = Some(age);
                }
                () if is("skipme") && (yes || value.eq_ignore_ascii_case(b"no")) => {
                    filter.includes_self = !yes;
                }
                () => return Err(Wrong::Redis(Failure::Syntax)),
            }
            left = left.from(2);
        }
        match left.is_empty() {
            true => Ok(filter),
            false => Err(Wrong::Redis(Failure::Syntax)),
        }
    }

    fn means(&self, shown: &Shown, now: Timestamp) -> bool {
        let id = i64::try_from(shown.id).unwrap_or(i64::MAX);
        let age = now.saturating_sub(shown.connected) / 1_000_000;
        self.id.is_none_or(|wanted| wanted == id)
            && self.address.is_none_or(|address| address == shown.address)
            && self
                .local_address
                .is_none_or(|address| address == shown.local_address)
            && self.user.is_none_or(|user| user == shown.user)
            && self.kind.is_none_or(|is| is(shown))
            && self.longest_age.is_none_or(|longest| age >= longest)
    }
}

/// Returns whether a client may disconnect another client, by the rule for Postgres sessions.
fn may_end(session: &Session, privileges: ServerPrivileges, shown: &Shown) -> bool {
    privileges.is_superuser
        || !shown.is_superuser && privileges.signals
        || shown.role != 0 && is_own(session, shown)
}

/// Returns whether CLIENT KILL accepts a name as a user: `default`, the user name of a connected client, or the name of
/// a role.
fn is_user(core: &mut Core, session: &mut Session, name: &[u8]) -> Result<bool, Progress> {
    let mut clients = core.registry.clients();
    if name == b"default" || clients.any(|(_, shown)| shown.user == name) {
        return Ok(true);
    }
    client_permissions::is_role(core, session, name)
}

/// Disconnects the clients that the options select and that the session may disconnect.
fn kill(
    core: &mut Core,
    session: &mut Session,
    options: Args<'_>,
    replies: &mut Writer,
) -> Progress {
    let privileges = match client_permissions::privileges(core, session) {
        Ok(privileges) => privileges,
        Err(step) => return step,
    };
    let old = options.len() == 1;
    let mut filter = match old {
        true => Filter {
            address: options.get(0),
            includes_self: true,
            ..Filter::default()
        },
        false => {
            let is_user = |name: &[u8]| is_user(core, session, name);
            match Filter::read(options, is_user, replies) {
                Ok(filter) => filter,
                Err(step) => return step,
            }
        }
    };
    let default = core.limits.default_role;
    if filter.user == Some(b"default")
        && let Some(default) = &default
    {
        filter.user = Some(default.as_bytes());
    }
    let now = clock::now();
    let meant = |shown: &Shown| filter.means(shown, now) && may_end(session, privileges, shown);
    let clients = core.registry.clients().map(|(_, shown)| shown);
    let (own, others): (Vec<Shown>, Vec<Shown>) = clients
        .filter(meant)
        .partition(|shown| shown.id == session.id);
    let own = filter.includes_self && !own.is_empty();
    let ended = others.iter().filter(|shown| core.registry.end(shown.id));
    let killed = ended.count() + usize::from(own);
    core.end_requested();
    match (old, killed) {
        (true, 0) => replies.error(&[b"ERR No such client"]),
        (true, _) => replies.simple("OK"),
        (false, killed) => replies.integer(i64::try_from(killed).unwrap_or(i64::MAX)),
    }
    match own {
        true => Progress::Close,
        false => Progress::Done,
    }
}
