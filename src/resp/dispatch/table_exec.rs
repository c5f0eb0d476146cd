//! Runs EXEC and WATCH on a table. An EXEC is one transaction of an executor, which first locks the watched keys and
//! compares them.

use std::rc::Rc;

use pgcache_resp::{Args, Command, CopyOptions, Failure, Kind, Parsed, Writer, rule};

use crate::pg::resp::work_queue::{Lane, Work};
use crate::resp::commands::{WatchedRows, channels, watched_rows};
use crate::resp::dispatch::flush_all;
use crate::resp::dispatch::offload::{is_logged, lane, writes_log};
use crate::resp::ipc::pending_batch::PendingBatch;
use crate::resp::ipc::permission_cache::Permission;
use crate::resp::session::Session;
use crate::resp::session::progress::Progress;
use crate::resp::shared::Core;
use crate::resp::shared::tracking;

const NOT_IN_EXEC: &[u8] = b"EXECABORT Transaction discarded because one of its commands is not supported inside EXEC on a table cache: see docs/door.md";

/// Offloads an EXEC on a table, whose commands run in one transaction of an executor.
pub fn exec(
    core: &mut Core,
    session: &mut Session,
    permission: Rc<Permission>,
    replies: &mut Writer,
) -> Progress {
    if !core.submitter.has_room(permission.target.cache.relation) {
        return Progress::Starve;
    }
    let before = replies.as_bytes().len();
    let watched = session
        .state
        .take_watched_rows(permission.target.cache.relation);
    let Some(queue) = session.state.exec(core.now, replies) else {
        return Progress::Done;
    };
    let (mut commands, mut is_long, mut logs) = (0, false, false);
    let mut readers = Vec::new();
    for args in queue.iter() {
        // An invalid command is offloaded, too, because its element of the reply must be its error.
        if let Ok(command) = Parsed::read(args) {
            if !is_for_table(core, session, &command) {
                replies.rewind(before);
                replies.error(&[NOT_IN_EXEC]);
                return Progress::Done;
            }
            if let Command::Publish { channel, .. } = &command.command {
                readers.push(channels::count_readers(channel));
            }
            is_long |= command.kind() == Kind::Long;
            logs |= is_logged(&permission, &command);
            tracking::note_reads(core, session, &permission, &command);
        }
        commands += 1;
    }
    // Locking the row of a watched key also writes to the log.
    logs |= !watched.are_absent() && writes_log(&permission);
    if commands == 0 && watched.is_empty() {
        return Progress::Done;
    }
    replies.rewind(before);
    let kind = match is_long {
        true => Kind::Long,
        false => Kind::Write,
    };
    let mut collected =
        watched_rows::head(core.catalog.permissions.databases(), &watched, &readers);
    collected.extend_from_slice(&queue.into_requests());
    let pending = PendingBatch {
        work: Work::Exec,
        lane: lane(&permission, kind),
        from: 0,
        commands,
        is_logged: logs,
        is_full: true,
        collected: Some(collected),
        copied_to: None,
        permission,
    };
    Progress::Offload(Box::new(pending))
}

/// Returns whether an EXEC on one table may contain a command.
fn is_for_table(core: &Core, session: &Session, command: &Parsed<'_>) -> bool {
    match command.entry.kind {
        Kind::NoEntries | Kind::Watch => command.entry.has(rule::IN_TABLE_EXEC),
        _ => match command.command {
            Command::Copy { options, .. } => !leaves(core, session, options),
            _ => !flush_all::is_meant(core, session, command),
        },
    }
}

/// Returns whether a COPY goes to another cache.
fn leaves(core: &Core, session: &Session, options: CopyOptions<'_>) -> bool {
    let read = options.read(core.catalog.permissions.databases());
    matches!(read, Ok((Some(other), _)) if other != session.database as usize)
}

/// Runs WATCH, for which an executor returns the fingerprints of the keys.
pub fn watch(
    core: &mut Core,
    session: &mut Session,
    permission: Rc<Permission>,
    keys: Args<'_>,
    replies: &mut Writer,
) -> Progress {
    if session.state.in_transaction() {
        Failure::WatchInsideMulti.write(replies);
        return Progress::Done;
    }
    if !core.submitter.has_room(permission.target.cache.relation) {
        return Progress::Starve;
    }
    session.offloaded.watching = Some(Box::new(WatchedRows::of(
        permission.target.cache.relation,
        keys,
    )));
    let pending = PendingBatch {
        work: Work::Watch,
        lane: match permission.runs_user_code {
            true => Lane::Slow,
            false => Lane::Quick,
        },
        from: 0,
        commands: 1,
        is_logged: false,
        is_full: true,
        collected: None,
        copied_to: None,
        permission,
    };
    Progress::Offload(Box::new(pending))
}
