//! Offloads commands that need the table: submits them to an executor, and makes the client wait for the replies. Later
//! commands of the client's pipeline on the same cache may join the first command.
//!
//! A client's commands must run in their order, so no command of a client runs while an executor runs an earlier
//! command of the client.

use std::rc::Rc;

use pgcache_resp::{Args, Command, Kind, Parsed, Writer, flag};

use crate::cache::catalog::registry::Storage;
use crate::pg::resp::work_queue::{Handed, Lane, Work};
use crate::pg::session::clock;
use crate::resp::commands;
use crate::resp::dispatch::flush_all;
use crate::resp::ipc::pending_batch::PendingBatch;
use crate::resp::ipc::permission_cache::Permission;
use crate::resp::session::connection::Connection;
use crate::resp::session::progress::Progress;
use crate::resp::session::{Flushing, Replies, Session, Waits};
use crate::resp::shared::Core;
use crate::resp::shared::tracking;

/// The maximum number of commands that are offloaded together.
const COMMANDS: u32 = 32;
/// The maximum size in bytes of commands that are offloaded together.
const BYTES: usize = 64 << 10;

/// Begins to offload a command, so that later commands may join it. Refuses a command that no executor runs.
pub fn begin(
    core: &mut Core,
    session: &Session,
    permission: Rc<Permission>,
    command: &Parsed<'_>,
    replies: &mut Writer,
) -> Progress {
    let kind = command.kind();
    if kind == Kind::NoEntries {
        commands::write_table(replies);
        return Progress::Done;
    }
    if !core.submitter.has_room(permission.target.cache.relation) {
        return Progress::Starve;
    }
    let lane = lane(&permission, kind);
    let pending = PendingBatch {
        work: work(kind),
        lane,
        from: 0,
        commands: 1,
        is_logged: is_logged(&permission, command),
        is_full: lane == Lane::Slow || session.replies != Replies::On,
        collected: None,
        copied_to: None,
        permission,
    };
    Progress::Offload(Box::new(pending))
}

/// Begins to offload a COPY from or to a table.
pub fn begin_copy(core: &mut Core, from: Rc<Permission>, to: Rc<Permission>) -> Progress {
    if !core.submitter.has_room(from.target.cache.relation) {
        return Progress::Starve;
    }
    let pending = PendingBatch {
        work: Work::Write,
        lane: match copies_once(&from, &to) {
            true => Lane::Slow,
            false => Lane::Quick,
        },
        from: 0,
        commands: 1,
        is_logged: to.target.is_table() && writes_log(&to),
        is_full: true,
        collected: None,
        copied_to: Some(to),
        permission: from,
    };
    Progress::Offload(Box::new(pending))
}

/// Returns whether a COPY must not run twice. A COPY to a memory cache must not, because the memory cache changes at
/// once, and stays changed if the transaction is rolled back. A COPY from a memory cache to a table may run twice, like
/// any write of a table.
fn copies_once(from: &Permission, to: &Permission) -> bool {
    from.runs_user_code || to.runs_user_code || !to.target.is_table()
}

pub fn lane(permission: &Permission, kind: Kind) -> Lane {
    match permission.runs_user_code || kind == Kind::Long {
        true => Lane::Slow,
        false => Lane::Quick,
    }
}

/// Returns whether a command writes to the write-ahead log.
pub fn is_logged(permission: &Permission, command: &Parsed<'_>) -> bool {
    match command.kind() {
        Kind::Read | Kind::Watch | Kind::NoEntries => false,
        Kind::Write => writes_log(permission),
        // Clearing a table writes to the log; the other long commands only read.
        Kind::Long => command.entry.flags & flag::WRITE != 0,
    }
}

/// Returns whether a write to this table may be logged. This is also true for a table with user-defined code or
/// partitions, which may write to logged tables.
pub fn writes_log(permission: &Permission) -> bool {
    let cache = &permission.target.cache;
    cache.storage == Storage::Logged || cache.partitioned || permission.runs_user_code
}

fn work(kind: Kind) -> Work {
    match kind {
        Kind::Read => Work::Read,
        _ => Work::Write,
    }
}

/// Returns whether the client's next command joins the pending batch. `end` is the end of the command in the input.
pub fn joins(
    core: &mut Core,
    session: &mut Session,
    pending: &mut PendingBatch,
    args: Args<'_>,
    end: usize,
) -> bool {
    !pending.is_full
        && pending.commands < COMMANDS
        && end - pending.from <= BYTES
        && !session.state.in_transaction()
        && !core.pauses.is_on()
        && takes(core, session, pending, args)
}

fn takes(
    core: &mut Core,
    session: &mut Session,
    pending: &mut PendingBatch,
    args: Args<'_>,
) -> bool {
    let Ok(command) = Parsed::read(args) else {
        return false;
    };
    let kind = command.kind();
    let may_leave = matches!(command.command, Command::Copy { .. }); // to another cache
    if may_leave || !matches!(kind, Kind::Read | Kind::Write) {
        return false;
    }
    session.note_name(args.get(0).unwrap_or_default());
    tracking::note_reads(core, session, &pending.permission, &command);
    tracking::command_handed(session, &command);
    pending.work = pending.work.max(work(kind));
    pending.commands += 1;
    pending.is_logged |= is_logged(&pending.permission, &command);
    true
}

/// Submits the pending batch, and makes the client wait. Returns false if the queue has no room now.
pub fn submit(
    core: &mut Core,
    session: &mut Session,
    pending: &PendingBatch,
    requests: &[u8],
) -> bool {
    let Some(role) = session.login.role else {
        return false;
    };
    let handed = Handed {
        ticket: session.id,
        role,
        relation: pending.permission.target.cache.relation,
        is_logged: pending.is_logged,
        copied_to: pending
            .copied_to
            .as_ref()
            .map(|to| to.target.cache.relation),
        alone: match &pending.copied_to {
            Some(to) => copies_once(&pending.permission, to),
            None => pending.permission.runs_user_code,
        },
        work: pending.work,
        commands: pending.commands,
        three: session.protocol == pgcache_resp::Protocol::Resp3,
        since: clock::now(),
    };
    let Some(place) = core.submitter.hand(handed, pending.lane, requests) else {
        return false;
    };
    session.offloaded.handed = Some(place);
    session.wait_for(Waits::Table);
    core.counters.commands += u64::from(pending.commands);
    session.activity.commands += u64::from(pending.commands);
    session.offloaded.mute = matches!(session.replies, Replies::Off | Replies::Skip);
    if session.replies == Replies::Skip {
        session.replies = Replies::On;
    }
    true
}

/// Wakes executors for the submitted work.
pub fn wake_executors(core: &mut Core) {
    let (quick, slow) = std::mem::take(&mut core.submitter.untold);
    if quick {
        core.submitter.work_queue.processes.wake_quick();
    }
    if slow {
        core.submitter.work_queue.processes.wake_slow();
    }
    core.submitter.look_at_lanes();
}

/// Writes an executor's reply for a client, before any other message to it.
pub fn reply(core: &mut Core, client: &mut Connection, replies: &mut Writer) {
    let session = &mut client.session;
    if let Some(answered) = session.offloaded.answered.take() {
        tracking::reply_came(
            core,
            session,
            core.submitter.work_queue.batches.soonest(&answered),
        );
        let (before, batches) = (replies.as_bytes().len(), core.submitter.work_queue.batches);
        if matches!(session.unfinished.flushing, Flushing::Requested(_)) {
            flush_all::answered(session, |take| batches.reply(&answered, take));
            return core.submitter.give_back(answered);
        }
        match session.offloaded.watching.take() {
            None => batches.reply(&answered, |bytes| replies.append(bytes)),
            Some(watched) => {
                let mut numbers = Vec::new();
                batches.reply(&answered, |bytes| numbers.extend_from_slice(bytes));
                session.state.watch_rows(*watched, &numbers, replies);
            }
        }
        if session.offloaded.mute {
            replies.rewind(before);
        }
        core.submitter.give_back(answered);
    }
}
