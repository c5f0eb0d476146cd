//! Runs CLIENT TRACKING, CLIENT CACHING, CLIENT TRACKINGINFO and CLIENT GETREDIR. A client is notified only of keys
//! that it may read, and REDIRECT can name only clients of the same role; otherwise tracking would reveal keys of other
//! roles.

use pgcache_resp::{Args, Entry, Failure, Writer};
use pgrx::PgSqlErrorCode;

use crate::pg::catalog::privilege::Privileges;
use crate::pg::resp::client_registry::Shown;
use crate::pg::session::{self, failure};
use crate::pg::shmem::ring;
use crate::pg::shmem::tier;
use crate::resp::session::Session;
use crate::resp::session::progress::Progress;
use crate::resp::session::tracked::{Mode, Options};
use crate::resp::shared::Core;
use crate::resp::shared::client_permissions;

/// Runs one of these commands.
pub fn run(
    core: &mut Core,
    session: &mut Session,
    entry: &'static Entry,
    args: Args<'_>,
    replies: &mut Writer,
) -> Progress {
    match entry.last_name() {
        "tracking" => return tracking(core, session, args, replies),
        "caching" => caching(session, args.get(2).unwrap_or_default(), replies),
        "getredir" => {
            replies.integer(redirect(session));
        }
        _ => info(session, replies),
    }
    Progress::Done
}

/// Returns the id of the client that is notified instead of this client: 0 if there is no other client, -1 if the
/// client does not track.
fn redirect(session: &Session) -> i64 {
    let tracked = session.tracking.as_ref();
    tracked.map_or(-1, |tracked| tracked.redirect.map_or(0, number))
}

fn number(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

fn tracking(
    core: &mut Core,
    session: &mut Session,
    args: Args<'_>,
    replies: &mut Writer,
) -> Progress {
    // A client of another role cannot be the target, and the reply does not reveal that it exists.
    let may_target = |id| {
        let other = core.clients.of_id(id);
        match id == session.id
            || other.is_some_and(|other| other.session.login.role == session.login.role)
        {
            true => Ok(()),
            false => Err(why_not(core, session, id)),
        }
    };
    let Some(options) = Options::read(args.from(3), may_target, replies) else {
        return Progress::Done;
    };
    let switch = args.get(2).unwrap_or_default();
    if switch.eq_ignore_ascii_case(b"off") {
        let tracked = session.tracking.take();
        core.tracking.end(session.id, tracked.as_deref());
        replies.simple("OK");
        return Progress::Done;
    }
    if !switch.eq_ignore_ascii_case(b"on") {
        Failure::Syntax.write(replies);
        return Progress::Done;
    }
    let Some(mut tracked) = options.apply(session.tracking.as_deref(), replies) else {
        return Progress::Done;
    };
    if let Err(step) = refuse_on_standby(core, session, replies) {
        return step;
    }
    if tracked.mode == Mode::Broadcast {
        // A client that is notified of keys that it has not read needs the privilege to read them.
        let slot = match client_permissions::permission(core, session, replies) {
            Ok(permission) if !permission.target.privileges.has(Privileges::READ) => {
                replies.error(&[b"NOPERM No permissions to access a key"]);
                return Progress::Done;
            }
            Ok(permission) if !permission.may_send_keys() => {
                replies.error(&[b"ERR CLIENT TRACKING with BCAST is not supported on a table cache with row-level security or with keys that are not text: see docs/door.md"]);
                return Progress::Done;
            }
            Ok(permission) => tier::tier().and_then(|tier| permission.target.cache.slot(tier)),
            Err(step) => return step,
        };
        if !begin(core, session.id, tracked.redirect, replies) {
            return Progress::Done;
        }
        slot.into_iter().for_each(|slot| core.tracking.follow(slot));
        tracked.slot = slot;
        for prefix in &tracked.prefixes {
            let clients = core.tracking.prefixes.entry(prefix.clone()).or_default();
            if !clients.contains(&session.id) {
                clients.push(session.id);
            }
        }
    } else if !begin(core, session.id, tracked.redirect, replies) {
        return Progress::Done;
    }
    session.tracking = Some(Box::new(tracked));
    replies.simple("OK");
    Progress::Done
}

/// Returns the reason why a client cannot be the target. The caller has found no client with this id and role in this
/// network process.
fn why_not(core: &Core, session: &Session, id: u64) -> &'static str {
    let role = session.login.role.map(|role| role.to_u32());
    let is_it = |shown: &Shown| shown.id == id && Some(shown.role) == role;
    let mut clients = core.registry.clients().map(|(_, shown)| shown);
    match core.peers.is_some() && clients.any(|shown| is_it(&shown)) {
        true => {
            "the client to redirect to is served by another process; use version 3 of the protocol, which needs no REDIRECT: see docs/door.md"
        }
        false => "The client ID you want redirect to does not exist",
    }
}

/// Refuses to track a table cache on a standby, because replication changes its rows without reporting keys.
fn refuse_on_standby(
    core: &mut Core,
    session: &mut Session,
    replies: &mut Writer,
) -> Result<(), Progress> {
    if !session::in_recovery() {
        return Ok(());
    }
    let before = replies.as_bytes().len();
    match client_permissions::permission(core, session, replies) {
        Ok(permission) if permission.target.is_table() => {
            replies.error(&[b"ERR CLIENT TRACKING is not supported on a table cache of a standby, which does not receive the changed keys: see docs/door.md"]);
            Err(Progress::Done)
        }
        // A client without the privilege to read the cache may track: it is not notified of the cache's keys.
        Ok(_) | Err(Progress::Done) => {
            replies.rewind(before);
            Ok(())
        }
        Err(step) => Err(step),
    }
}

fn begin(core: &mut Core, client: u64, redirect: Option<u64>, replies: &mut Writer) -> bool {
    let begun = core.tracking.begin(client, redirect);
    if !begun {
        core.tracking.end(client, None);
        say_no_ring();
        replies.error(&[
            b"ERR CLIENT TRACKING is not available in this process: see the server's log",
        ]);
    }
    begun
}

fn caching(session: &mut Session, answer: &[u8], replies: &mut Writer) {
    let is = |word: &str| answer.eq_ignore_ascii_case(word.as_bytes());
    let Some(tracked) = session.tracking.as_deref_mut() else {
        let words = b"ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled";
        return replies.error(&[words]);
    };
    match tracked.mode {
        Mode::OptIn if is("yes") => tracked.caching = true,
        Mode::OptOut if is("no") => tracked.caching = true,
        _ if is("yes") => {
            return replies.error(&[
                b"ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ]);
        }
        _ if is("no") => {
            return replies.error(&[
                b"ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ]);
        }
        _ => return Failure::Syntax.write(replies),
    }
    replies.simple("OK");
}

fn info(session: &Session, replies: &mut Writer) {
    let mut flags = Vec::new();
    let mut prefixes: &[Box<[u8]>] = &[];
    match session.tracking.as_deref() {
        None => flags.push("off"),
        Some(tracked) => {
            flags.push("on");
            match (tracked.mode, tracked.caching) {
                (Mode::Reads, _) => {}
                (Mode::Broadcast, _) => flags.push("bcast"),
                (Mode::OptIn, caching) => {
                    flags.push("optin");
                    flags.extend(caching.then_some("caching-yes"));
                }
                (Mode::OptOut, caching) => {
                    flags.push("optout");
                    flags.extend(caching.then_some("caching-no"));
                }
            }
            flags.extend(tracked.no_loop.then_some("noloop"));
            flags.extend(tracked.broken.then_some("broken_redirect"));
            prefixes = &tracked.prefixes;
        }
    }
    replies.map(3);
    replies.bulk(b"flags");
    replies.set(flags.len());
    flags.iter().for_each(|flag| replies.bulk(flag.as_bytes()));
    replies.bulk(b"redirect");
    replies.integer(redirect(session));
    replies.bulk(b"prefixes");
    replies.array(prefixes.len());
    prefixes.iter().for_each(|prefix| replies.bulk(prefix));
}

/// Logs, once in a network process, that no client can track in this process.
fn say_no_ring() {
    failure::warn(
        PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        "CLIENT TRACKING of the Redis protocol is not available in this process".into(),
        format!(
            "At most {} processes can notify their clients of changes.",
            ring::READERS
        ),
        "Lower the number of processes of the Redis protocol.",
    );
}
