//! Runs FLUSHALL of several databases. If the role may not clear one of them, FLUSHALL clears none.
//!
//! Tables are cleared first, in one transaction of an executor, because clearing a table may fail. The request stays in
//! the input while the executor works. Then the first piece hides all entries of the memory caches at once. The later
//! pieces free their memory, and other clients are served between two pieces.

use std::rc::Rc;

use pgcache_resp::{Command, Parsed, Protocol, Writer};
use pgrx::pg_sys::Oid;

use crate::pg::resp::work_queue::{Handed, Lane, Work};
use crate::pg::session::clock;
use crate::resp::auth::PermissionError;
use crate::resp::commands;
use crate::resp::ipc::permission_cache::Permission;
use crate::resp::session::progress::Progress;
use crate::resp::session::{Flushing, Session, Waits};
use crate::resp::shared::Core;
use crate::resp::shared::client_permissions;

const NOT_IN_EXEC: &[u8] =
    b"ERR FLUSHALL is not supported inside EXEC if one of the caches is a table";

/// Returns whether a command is a FLUSHALL of several databases, or continues one.
pub fn is_meant(core: &Core, session: &Session, command: &Command<'_>) -> bool {
    let of_all = matches!(
        command,
        Command::Clear {
            all_databases: true
        }
    );
    let begun = !session.unfinished.to_clear.is_empty()
        || !matches!(session.unfinished.flushing, Flushing::No);
    of_all && (core.catalog.permissions.databases() > 1 || begun)
}

/// Begins a FLUSHALL, or does its next piece.
pub fn run(
    core: &mut Core,
    session: &mut Session,
    command: &Parsed<'_>,
    replies: &mut Writer,
) -> Progress {
    let before = replies.as_bytes().len();
    let Some((continuation, permission)) = session.unfinished.continued.take() else {
        let step = begin(core, session, command, replies);
        if !matches!(step, Progress::Wait | Progress::Starve | Progress::More) {
            // The next FLUSHALL begins from the start, however this FLUSHALL ended.
            session.unfinished.flushing = Flushing::No;
        }
        return step;
    };
    let (target, state) = (&permission.target, &mut session.state);
    match commands::go_on(continuation, command, target, state, core.now, replies) {
        commands::Outcome::More(continuation) => {
            session.unfinished.continued = Some((continuation, permission))
        }
        commands::Outcome::Done if session.unfinished.to_clear.is_empty() => return Progress::Done,
        commands::Outcome::Done => session.unfinished.continued = session.unfinished.to_clear.pop(),
        commands::Outcome::Gone | commands::Outcome::NotOurs | commands::Outcome::Table => {
            session.unfinished.to_clear.clear();
            commands::write_gone(replies);
            return Progress::Done;
        }
    }
    replies.rewind(before);
    Progress::More
}

fn begin(
    core: &mut Core,
    session: &mut Session,
    command: &Parsed<'_>,
    replies: &mut Writer,
) -> Progress {
    let mut all = Vec::new();
    for database in 0..core.catalog.permissions.databases() as u32 {
        let before = replies.as_bytes().len();
        let role = session.login.role;
        let is_distributed = |core: &Core| {
            role.is_some_and(|role| core.catalog.permissions.is_distributed(role, database))
        };
        match client_permissions::permission_in(core, session, database, replies) {
            Ok(permission) => all.push(permission),
            // The cache is distributed, so it is skipped: the protocol serves none of its entries.
            Err(Progress::Done) if is_distributed(core) => replies.rewind(before),
            Err(step) => return step,
        }
    }
    if all.is_empty() {
        replies.error(&[PermissionError::Distributed.words().as_bytes()]);
        return Progress::Done;
    }
    if !all
        .iter()
        .all(|permission| commands::may_clear(&permission.target, core.now, replies))
    {
        return Progress::Done;
    }
    let emptied = match std::mem::take(&mut session.unfinished.flushing) {
        Flushing::No | Flushing::Requested(_) => Vec::new(),
        Flushing::Done(tables) => tables,
        Flushing::Failed(reply) => {
            replies.append(&reply);
            return Progress::Done;
        }
    };
    // The list of caches may have changed while the executor worked, so the executor may not have cleared every table
    // of the current list.
    let is_left = |permission: &&Rc<Permission>| {
        permission.target.is_table() && !emptied.contains(&number(permission))
    };
    let left: Vec<_> = all.iter().filter(is_left).collect();
    if !left.is_empty() {
        if session.in_exec {
            replies.error(&[NOT_IN_EXEC]);
            return Progress::Done;
        }
        return ask(core, session, &left, emptied);
    }
    all.retain(|permission| !permission.target.is_table());
    if all.is_empty() {
        replies.simple("OK");
    }
    let before = replies.as_bytes().len();
    for permission in all {
        replies.rewind(before);
        let (target, state) = (&permission.target, &mut session.state);
        match commands::run(command, target, state, core.now, replies) {
            commands::Outcome::More(continuation) => {
                session.unfinished.to_clear.push((continuation, permission))
            }
            commands::Outcome::Done => {}
            commands::Outcome::Gone | commands::Outcome::NotOurs | commands::Outcome::Table => {
                session.unfinished.to_clear.clear();
                commands::write_gone(replies);
                return Progress::Done;
            }
        }
    }
    session.unfinished.continued = session.unfinished.to_clear.pop();
    match session.unfinished.continued {
        None => Progress::Done,
        Some(_) => {
            replies.rewind(before);
            Progress::More
        }
    }
}

fn number(permission: &Permission) -> u32 {
    permission.target.cache.relation.to_u32()
}

/// Offloads the clearing of these tables to an executor.
fn ask(
    core: &mut Core,
    session: &mut Session,
    tables: &[&Rc<Permission>],
    mut emptied: Vec<u32>,
) -> Progress {
    let mut relations: Vec<u32> = tables.iter().map(|permission| number(permission)).collect();
    // Locks are taken in sorted order, so that two requests that lock the same tables cannot deadlock.
    relations.sort_unstable();
    relations.dedup();
    let (Some(first), Some(role)) = (relations.first(), session.login.role) else {
        return Progress::Done;
    };
    let numbers = relations.iter().map(u32::to_string).collect::<Vec<_>>();
    let request = format!("FLUSHALL {}\r\n", numbers.join(" "));
    let handed = Handed {
        ticket: session.id,
        role,
        relation: Oid::from_u32(*first),
        is_logged: true,
        copied_to: None,
        alone: tables.iter().any(|permission| permission.runs_user_code),
        work: Work::Clear,
        commands: 1,
        three: session.protocol == Protocol::Resp3,
        since: clock::now(),
    };
    let Some(place) = core.submitter.hand(handed, Lane::Slow, request.as_bytes()) else {
        session.unfinished.flushing = Flushing::Done(emptied);
        return Progress::Starve;
    };
    emptied.extend(relations);
    session.offloaded.handed = Some(place);
    session.unfinished.flushing = Flushing::Requested(emptied);
    session.wait_for(Waits::Table);
    Progress::Wait
}

/// Takes the executor's answer. The request then runs again.
pub fn answered(session: &mut Session, reply: impl FnOnce(&mut dyn FnMut(&[u8]))) {
    let Flushing::Requested(tables) = std::mem::take(&mut session.unfinished.flushing) else {
        return;
    };
    let mut bytes = Vec::new();
    reply(&mut |part| bytes.extend_from_slice(part));
    session.unfinished.flushing = match bytes.first() {
        Some(b'+') => Flushing::Done(tables),
        _ => Flushing::Failed(bytes),
    };
}
