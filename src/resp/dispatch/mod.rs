//! Runs commands on the connection, the server, channels and entries, and the commands that a transaction has
//! collected.
//!
//! `network::serve` reads the requests and sends the replies.

mod flush_all;
pub mod offload;
mod table_exec;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pgcache_resp::{Args, Command, Handler, Kind, Parsed, Writer, flag, rule};

use crate::guc;
use crate::pg::worker::background;
use crate::resp::commands::budget::Budget;
use crate::resp::commands::command_error::Done;
use crate::resp::commands::entry_access::Call;
use crate::resp::commands::{self, Admitted, Queue, channels};
use crate::resp::ipc::permission_cache::Permission;
use crate::resp::server::{self, errors};
use crate::resp::session::progress::Progress;
use crate::resp::session::{Session, Waits};
use crate::resp::shared::Core;
use crate::resp::shared::client_permissions;
use crate::resp::shared::tracking;

/// The time after which an EXEC refuses further commands of unbounded duration. No other client is served until the
/// EXEC ends.
const LONGEST_WALKS: Duration = Duration::from_millis(100);

/// Runs one command of a client.
pub fn command(
    core: &mut Core,
    session: &mut Session,
    args: Args<'_>,
    replies: &mut Writer,
) -> Progress {
    session.note_name(args.get(0).unwrap_or_default());
    session.activity.heavy = false;
    if session.login.role.is_none()
        && let Err(step) = client_permissions::admit(core, session, args, replies)
    {
        return step;
    }
    if core.pauses.hold(session, args) {
        return Progress::Wait;
    }
    if session.state.in_transaction() {
        let kept = core.limits.request;
        if session.state.admit(args, kept, replies) == Admitted::Answered {
            return Progress::Done;
        }
    }
    match Parsed::read(args) {
        Ok(command) => {
            if matches!(command.command, Command::Other) {
                session.note_name(command.entry.name.as_bytes());
            }
            session.activity.heavy = !command.entry.has(rule::LIGHT);
            let step = execute(core, session, &command, replies);
            match step {
                Progress::Done => tracking::command_done(session, &command),
                Progress::Offload(_) => tracking::command_handed(session, &command),
                _ => {}
            }
            step
        }
        Err(failure) => {
            failure.write(replies);
            Progress::Done
        }
    }
}

/// Runs an admitted command.
fn execute(
    core: &mut Core,
    session: &mut Session,
    command: &Parsed<'_>,
    replies: &mut Writer,
) -> Progress {
    let peers = core.peers.filter(|_| command.entry.has(rule::ATOMIC));
    let alone = peers.map(|peers| peers.gate.alone());
    let step = execute_here(core, session, command, replies);
    drop(alone);
    step
}

fn execute_here(
    core: &mut Core,
    session: &mut Session,
    command: &Parsed<'_>,
    replies: &mut Writer,
) -> Progress {
    match &command.command {
        Command::Ping { message } if channels::is_reader(&session.state, session.protocol) => {
            channels::pong(*message, replies);
            Progress::Done
        }
        // Subscriptions inside a transaction restrict only the commands after it.
        _ if !session.in_exec && channels::is_reader(&session.state, session.protocol) => {
            as_reader(core, session, command, replies)
        }
        Command::Exec => exec(core, session, replies),
        _ => match command.entry.handler {
            Handler::Server => server::run(core, session, command, replies),
            Handler::Transaction => {
                commands::on_state(command, &mut session.state, replies);
                Progress::Done
            }
            Handler::Channels => {
                channels::run(command, session.id, &mut session.state, core, replies);
                session.is_loud = command.entry.has(rule::SUBSCRIBES);
                Progress::Done
            }
            Handler::Entries => on_entries(core, session, command, replies),
        },
    }
}

/// Runs a command of a RESP2 client that has subscribed to channels. Only a few commands are allowed.
fn as_reader(
    core: &mut Core,
    session: &mut Session,
    command: &Parsed<'_>,
    replies: &mut Writer,
) -> Progress {
    match command.command {
        Command::Quit | Command::Reset => {
            return server::run(core, session, command, replies);
        }
        _ if command.entry.has(rule::SUBSCRIBES) => {
            channels::run(command, session.id, &mut session.state, core, replies);
            session.is_loud = true;
        }
        Command::Exec => channels::refuse_exec(replies),
        _ => channels::refuse(command.entry.name, replies),
    }
    Progress::Done
}

/// Runs a command on the entries of the cache of the client's database.
fn on_entries(
    core: &mut Core,
    session: &mut Session,
    command: &Parsed<'_>,
    replies: &mut Writer,
) -> Progress {
    if flush_all::is_meant(core, session, command) {
        return flush_all::run(core, session, command, replies);
    }
    let anew = match session.unfinished.continued.take() {
        Some((continuation, _)) if continuation.begins_anew() => Some(continuation),
        // A piece of the command is already done, so the rest runs under the same permission.
        Some((continuation, permission)) => {
            tracking::reads_on(session);
            let (target, state) = (&permission.target, &mut session.state);
            let step = commands::go_on(continuation, command, target, state, core.now, replies);
            return came(core, session, permission, command, step, replies);
        }
        None => None,
    };
    if let Command::Copy { from, to, options } = command.command {
        match options.read(core.catalog.permissions.databases()) {
            Ok((Some(other), replace)) if other != session.database as usize => {
                return copy_to(core, session, (from, to), other as u32, replace, replies);
            }
            Ok(_) => {}
            Err(failure) => {
                failure.write(replies);
                return Progress::Done;
            }
        }
    }
    match client_permissions::permission(core, session, replies) {
        Ok(permission) => {
            tracking::note_reads(core, session, &permission, command);
            if needs_table(&permission, command) {
                return to_table(core, session, permission, command, replies);
            }
            let (target, state) = (&permission.target, &mut session.state);
            let step = match anew {
                None => commands::run(command, target, state, core.now, replies),
                Some(begun) => commands::go_on(begun, command, target, state, core.now, replies),
            };
            came(core, session, permission, command, step, replies)
        }
        Err(step) => step,
    }
}

/// Returns whether only the table, and not the copies of its entries, can answer a command.
fn needs_table(permission: &Permission, command: &Parsed<'_>) -> bool {
    permission.target.is_table()
        && command.entry.kind != Kind::NoEntries
        && !(permission.may_be_hot && commands::fits_copies(command))
}

/// Runs COPY to another database.
fn copy_to(
    core: &mut Core,
    session: &mut Session,
    keys: (&[u8], &[u8]),
    database: u32,
    replace: bool,
    replies: &mut Writer,
) -> Progress {
    let from = match client_permissions::permission(core, session, replies) {
        Ok(from) => from,
        Err(step) => return step,
    };
    let to = match client_permissions::permission_in(core, session, database, replies) {
        Ok(to) => to,
        Err(step) => return step,
    };
    match (from.target.is_table(), to.target.is_table()) {
        (false, false) => {}
        _ => return offload::begin_copy(core, from, to),
    }
    let targets = (&from.target, &to.target);
    match commands::copy_between(keys, targets, replace, core.now, replies) {
        commands::Outcome::Gone => commands::write_gone(replies),
        commands::Outcome::Table => commands::write_table(replies),
        commands::Outcome::NotOurs | commands::Outcome::More(_) | commands::Outcome::Done => {}
    }
    Progress::Done
}

/// Runs a command that needs the table.
fn to_table(
    core: &mut Core,
    session: &mut Session,
    permission: Rc<Permission>,
    command: &Parsed<'_>,
    replies: &mut Writer,
) -> Progress {
    match command.command {
        Command::Watch { keys } => table_exec::watch(core, session, permission, keys, replies),
        _ => offload::begin(core, session, permission, command, replies),
    }
}

/// Converts the outcome of a command to the client's progress.
fn came(
    core: &mut Core,
    session: &mut Session,
    permission: Rc<Permission>,
    command: &Parsed<'_>,
    step: commands::Outcome,
    replies: &mut Writer,
) -> Progress {
    tracking::has_read(core, session);
    match step {
        commands::Outcome::Done => {
            session.unfinished.gone = false;
            Progress::Done
        }
        commands::Outcome::More(continuation) => {
            session.unfinished.continued = Some((continuation, permission));
            Progress::More
        }
        commands::Outcome::Gone if session.unfinished.gone => {
            session.unfinished.gone = false;
            commands::write_gone(replies);
            Progress::Done
        }
        // Requests the permission again, so that the executor gives the cache a slot or reports that the cache does not
        // exist.
        commands::Outcome::Gone => {
            permission.forget();
            session.unfinished.gone = true;
            match client_permissions::permission(core, session, replies) {
                Ok(_) => Progress::More,
                Err(step) => step,
            }
        }
        commands::Outcome::Table => to_table(core, session, permission, command, replies),
        commands::Outcome::NotOurs => {
            errors::unsupported(command.entry.name, replies);
            Progress::Done
        }
    }
}

/// Runs the commands of a transaction one after the other. No command can wait here. The permissions for the commands
/// were requested when the commands were collected; a command whose permission is still unknown is refused.
fn exec(core: &mut Core, session: &mut Session, replies: &mut Writer) -> Progress {
    if session.state.in_transaction() {
        match client_permissions::permission(core, session, replies) {
            Ok(permission) if permission.target.is_table() => {
                return table_exec::exec(core, session, permission, replies);
            }
            Ok(_) => {}
            // The error is the reply to EXEC.
            Err(Progress::Done) => return refuse_exec(core, session, replies),
            Err(step) => return step,
        }
    }
    let databases = match databases_of(core, session) {
        Ok(databases) => databases,
        Err(step) => return step,
    };
    let before = replies.as_bytes().len();
    let Some(queue) = session.state.exec(core.now, replies) else {
        return Progress::Done;
    };
    if let Err(error) = within_budget(core, session, &queue, databases) {
        replies.rewind(before);
        error.write(replies);
        return Progress::Done;
    }
    // A client with CLIENT REPLY OFF receives no array header. Each command may still change CLIENT REPLY for the rest.
    if session.is_silent() {
        replies.rewind(before);
    }
    let began = Instant::now();
    let mut closes = false;
    session.in_exec = true;
    let mut from = replies.as_bytes().len();
    for args in queue.iter() {
        silence(session, replies, &mut from);
        if background::is_end_requested() {
            closes = true;
            break;
        }
        let Ok(command) = Parsed::read(args).map_err(|failure| failure.write(replies)) else {
            continue;
        };
        if replies.overflowed() && only_reads(&command) {
            continue; // the connection closes without the reply
        }
        if takes_its_time(&command) && began.elapsed() > LONGEST_WALKS {
            replies.error(&[b"ERR EXEC has run too long for another command of this kind"]);
            continue;
        }
        loop {
            let before = replies.as_bytes().len();
            match execute(core, session, &command, replies) {
                Progress::Done => break,
                Progress::More => continue,
                Progress::Close => {
                    closes = true;
                    break;
                }
                Progress::Offload(_) => {
                    replies.rewind(before);
                    replies
                        .error(&[b"ERR one EXEC cannot use both a table cache and a memory cache"]);
                    break;
                }
                Progress::Wait | Progress::Starve => {
                    session.waits = Waits::Nothing;
                    replies.rewind(before);
                    replies.error(&[b"TRYAGAIN this command would have to wait inside EXEC"]);
                    break;
                }
            }
        }
    }
    silence(session, replies, &mut from);
    session.is_loud = true;
    session.in_exec = false;
    match closes {
        true => Progress::Close,
        false => Progress::Done,
    }
}

/// Returns an error, before the first command of a transaction runs, if all commands together would cost too much.
fn within_budget<'a>(
    core: &mut Core,
    session: &mut Session,
    queue: &Queue,
    databases: BTreeSet<u32>,
) -> Done<'a> {
    let permission: Vec<_> = databases
        .into_iter()
        .filter_map(|database| Some((database, known(core, session, database)?)))
        .collect();
    let mut calls = Vec::new();
    for (database, permission) in &permission {
        calls.push((*database, Call::new(&permission.target, core.now)));
    }
    let mut budget = Budget::new(&calls, session.database, guc::hot_max_value());
    for args in queue.iter() {
        if let Ok(command) = Parsed::read(args) {
            budget.add(&command)?;
        }
    }
    Ok(())
}

/// Returns the databases that a transaction uses. Makes the client wait until its permissions in all of them are known,
/// because no command can wait inside an EXEC.
fn databases_of(core: &mut Core, session: &mut Session) -> Result<BTreeSet<u32>, Progress> {
    let named = core.catalog.permissions.databases();
    let mut databases = session.state.named_databases(named);
    let mut nowhere = Writer::new(session.protocol, 0);
    let mut waits = None;
    // All are requested before the client waits, because any change of roles voids all of them.
    for database in &databases {
        match client_permissions::permission_in(core, session, *database, &mut nowhere) {
            Err(Progress::Wait) => waits = Some(Progress::Wait),
            Err(Progress::Starve) => return Err(waits.unwrap_or(Progress::Starve)),
            _ => {}
        }
    }
    databases.insert(session.database);
    waits.map_or(Ok(databases), Err)
}

/// Returns the client's permission in a database. Returns None if the permission is unknown; the command is then
/// refused, because it would have to wait.
fn known(core: &mut Core, session: &mut Session, database: u32) -> Option<Rc<Permission>> {
    let mut nowhere = Writer::new(session.protocol, 0);
    let permission = client_permissions::permission_in(core, session, database, &mut nowhere);
    session.waits = Waits::Nothing;
    permission.ok()
}

/// Returns whether a command changes nothing.
fn only_reads(command: &Parsed<'_>) -> bool {
    match command.kind() {
        Kind::Read => true,
        Kind::Long => command.entry.flags & flag::WRITE == 0,
        Kind::NoEntries => command.entry.has(rule::DESCRIBES),
        Kind::Write | Kind::Watch => false,
    }
}

/// Returns whether the time of a command may exceed what its length and the length of the values imply.
fn takes_its_time(command: &Parsed<'_>) -> bool {
    command.entry.kind == Kind::Long || command.entry.has(rule::DESCRIBES | rule::MAY_BE_SLOW)
}

/// Removes the reply to a command of an EXEC, which begins at `from`, if CLIENT REPLY suppresses it.
fn silence(session: &mut Session, replies: &mut Writer, from: &mut usize) {
    if !std::mem::take(&mut session.is_loud) && session.is_silent() {
        replies.rewind(*from);
    }
    *from = replies.as_bytes().len();
}

/// Discards the transaction, whose error is already written.
fn refuse_exec(core: &Core, session: &mut Session, replies: &mut Writer) -> Progress {
    let before = replies.as_bytes().len();
    session.state.refuse();
    let _ = session.state.exec(core.now, replies);
    replies.rewind(before);
    Progress::Done
}
