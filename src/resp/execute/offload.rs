//! What only a table has: a front hands a client's commands over to a back, and the client waits for the
//! replies. Those that follow in its pipeline, for the same cache, go with the first.
//!
//! Guards a client's order: nothing of it is run while something of it is at a back.

use std::rc::Rc;
use std::time::Instant;

use pgcache_resp::{Args, Command, Kind, Parsed, Writer, flag};

use crate::cache::catalog::registry::Storage;
use crate::pg::resp::work_queue::{Handed, Lane, Work};
use crate::pg::session::clock;
use crate::resp::commands;
use crate::resp::execute::flush_all;
use crate::resp::ipc::pending_batch::Bundle;
use crate::resp::ipc::permission_cache::Decided;
use crate::resp::session::connection::Connection;
use crate::resp::session::{Flushing, Replies, Session, Waits};
use crate::resp::shared::Core;
use crate::resp::shared::authentication::Step;
use crate::resp::shared::tracking;

/// Commands, and bytes of them, that are handed over together.
const COMMANDS: u32 = 32;
const BYTES: usize = 64 << 10;

/// A command that a back is to run: others may join it. One that no back runs is refused.
pub fn begin(
    core: &mut Core,
    session: &Session,
    decided: Rc<Decided>,
    command: &Parsed<'_>,
    replies: &mut Writer,
) -> Step {
    let kind = command.kind();
    if kind == Kind::NoEntries {
        commands::write_table(replies);
        return Step::Done;
    }
    if !core.counter.has_room() {
        return Step::Starve;
    }
    let lane = lane(&decided, kind);
    core.bundle = Some(Bundle {
        work: work(kind),
        lane,
        from: 0,
        commands: 1,
        is_logged: is_logged(&decided, command),
        is_full: lane == Lane::Slow || session.replies != Replies::On,
        collected: None,
        copied_to: None,
        decided,
    });
    Step::HandOver
}

/// COPY from a table or to one.
pub fn begin_copy(core: &mut Core, from: Rc<Decided>, to: Rc<Decided>) -> Step {
    if !core.counter.has_room() {
        return Step::Starve;
    }
    core.bundle = Some(Bundle {
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
        decided: from,
    });
    Step::HandOver
}

/// A memory cache changes at once, and stays changed where the transaction is rolled back: so a COPY to one is never
/// run twice. One from there may be, as any write of a table.
fn copies_once(from: &Decided, to: &Decided) -> bool {
    from.runs_others_code || to.runs_others_code || !to.target.is_table()
}

pub fn lane(decided: &Decided, kind: Kind) -> Lane {
    match decided.runs_others_code || kind == Kind::Long {
        true => Lane::Slow,
        false => Lane::Quick,
    }
}

/// Whether a command writes to the log.
pub fn is_logged(decided: &Decided, command: &Parsed<'_>) -> bool {
    match command.kind() {
        Kind::Read | Kind::Watch | Kind::NoEntries => false,
        Kind::Write => writes_log(decided),
        // Emptying any table does; the others only read.
        Kind::Long => command.entry.flags & flag::WRITE != 0,
    }
}

/// Whether a write to this table does. Of others' code, and of partitions, nobody knows.
pub fn writes_log(decided: &Decided) -> bool {
    let cache = &decided.target.cache;
    cache.storage == Storage::Logged || cache.partitioned || decided.runs_others_code
}

fn work(kind: Kind) -> Work {
    match kind {
        Kind::Read => Work::Read,
        _ => Work::Write,
    }
}

/// Whether the client's next command goes with those that are to be handed over; `end` is where it ends in
/// the input.
pub fn joins(core: &mut Core, session: &mut Session, args: Args<'_>, end: usize) -> bool {
    let Some(mut bundle) = core.bundle.take() else {
        return false;
    };
    let joins = !bundle.is_full
        && bundle.commands < COMMANDS
        && end - bundle.from <= BYTES
        && !session.state.in_transaction()
        && !core.pauses.is_on()
        && takes(core, session, &mut bundle, args);
    core.bundle = Some(bundle);
    joins
}

fn takes(core: &mut Core, session: &mut Session, bundle: &mut Bundle, args: Args<'_>) -> bool {
    let Ok(command) = Parsed::read(args) else {
        return false;
    };
    let kind = command.kind();
    let may_leave = matches!(command.command, Command::Copy { .. }); // to another cache
    if may_leave || !matches!(kind, Kind::Read | Kind::Write) {
        return false;
    }
    session.note_name(args.get(0).unwrap_or_default());
    tracking::note_reads(core, session, &bundle.decided, &command);
    tracking::command_handed(session, &command);
    bundle.work = bundle.work.max(work(kind));
    bundle.commands += 1;
    bundle.is_logged |= is_logged(&bundle.decided, &command);
    true
}

/// Hands over what was bundled; its client waits from then on. False: there is no room now.
pub fn submit(core: &mut Core, session: &mut Session, bundle: &Bundle, requests: &[u8]) -> bool {
    let Some(role) = session.role else {
        return false;
    };
    let handed = Handed {
        front: core.number,
        ticket: session.id,
        role,
        relation: bundle.decided.target.cache.relation,
        is_logged: bundle.is_logged,
        copied_to: bundle.copied_to.as_ref().map(|to| to.target.cache.relation),
        alone: match &bundle.copied_to {
            Some(to) => copies_once(&bundle.decided, to),
            None => bundle.decided.runs_others_code,
        },
        work: bundle.work,
        commands: bundle.commands,
        three: session.protocol == pgcache_resp::Protocol::Resp3,
        since: clock::now(),
    };
    let Some(place) = core.counter.hand(handed, bundle.lane, requests) else {
        return false;
    };
    session.handed = Some(place);
    session.waits = Waits::Table;
    session.waits_since = Instant::now();
    core.figures.commands += u64::from(bundle.commands);
    session.commands += u64::from(bundle.commands);
    session.mute = matches!(session.replies, Replies::Off | Replies::Skip);
    if session.replies == Replies::Skip {
        session.replies = Replies::On;
    }
    true
}

/// Tells backs of what was handed over.
pub fn tell_backs(core: &mut Core) {
    let (quick, slow) = std::mem::take(&mut core.counter.untold);
    if quick {
        core.queue.wake_quick();
    }
    if slow {
        core.queue.wake_slow();
    }
    core.counter.look_at_lanes(&core.queue);
}

/// Takes what backs have answered: the clients go on.
pub fn take_answered(core: &mut Core) {
    let mut room = 0;
    while let Some((id, answered)) = core.counter.desk.take_answered(core.number) {
        room += 1;
        let place = core.clients.place_of(id);
        match place.and_then(|place| core.clients.get_mut(place)) {
            Some(client) if client.session.waits == Waits::Table => {
                client.session.handed = None;
                client.session.answered = Some(answered);
                core.wake(id, Waits::Table);
            }
            _ => core.counter.give_back(answered),
        }
    }
    core.feed_some_starved(room);
}

/// The reply that has come for a client goes before all else that it is told.
pub fn reply(core: &mut Core, client: &mut Connection, replies: &mut Writer) {
    let session = &mut client.session;
    if let Some(answered) = session.answered.take() {
        tracking::reply_came(core, session, core.counter.desk.soonest(&answered));
        let (before, desk) = (replies.as_bytes().len(), core.counter.desk);
        if matches!(session.flushing, Flushing::Asked(_)) {
            flush_all::answered(session, |take| desk.reply(&answered, take));
            return core.counter.give_back(answered);
        }
        match session.watching.take() {
            None => desk.reply(&answered, |bytes| replies.append(bytes)),
            Some(watched) => {
                let mut numbers = Vec::new();
                desk.reply(&answered, |bytes| numbers.extend_from_slice(bytes));
                session.state.watch_rows(*watched, &numbers, replies);
            }
        }
        if session.mute {
            replies.rewind(before);
        }
        core.counter.give_back(answered);
    }
}
