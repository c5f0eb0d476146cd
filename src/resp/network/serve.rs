//! Serves one client for one turn: runs the commands in its input and sends all replies at once. Bounds on the number
//! of commands, on the time and on the bytes of replies keep a client with a long pipeline from delaying other clients.

use std::time::{Duration, Instant};

use pgcache_resp::{Args, Batch, Broken, Limits, Parser, Writer};

use crate::guc;
use crate::pg::resp::work_queue::Work;
use crate::pg::session::clock;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::pause::{self, Window};
use crate::resp::dispatch;
use crate::resp::dispatch::offload;
use crate::resp::ipc::pending_batch::PendingBatch;
use crate::resp::network::handshake;
use crate::resp::server::slow_commands;
use crate::resp::session::connection::{Connection, Received, UNAUTHENTICATED};
use crate::resp::session::progress::Progress;
use crate::resp::session::read_batch::{self, Read};
use crate::resp::session::{Implicit, Replies, Session, Waits};
use crate::resp::shared::Core;
use crate::resp::shared::client_permissions;
use crate::resp::shared::tracking;

/// The number of commands, and the time, after which a turn ends.
const COMMANDS: u32 = 512;
const LONGEST: Duration = Duration::from_micros(200);
/// The number of commands after which a turn reads the clock.
const LOOK: u32 = 16;
/// The number of bytes of replies at which a turn ends.
const SEND: usize = 256 << 10;

/// Serves a client that is ready, or whose input was read.
pub fn serve(core: &mut Core, client: &mut Connection, read: &mut Read, now: Instant) -> Progress {
    match serve_once(core, client, read, now) {
        // Replies are left, and the last write did not fill the socket. So no event will report room in the socket, and
        // the client needs another turn.
        Progress::Done | Progress::Wait | Progress::Starve if client.may_send() => Progress::More,
        after => after,
    }
}

fn serve_once(core: &mut Core, client: &mut Connection, read: &mut Read, now: Instant) -> Progress {
    if client.flush().is_err() || client.killed {
        return Progress::Close;
    }
    if client.closing {
        return leave(client);
    }
    if let Some(after) = handshake::begin(core, client) {
        return after;
    }
    if client.unsent() > core.limits.output {
        core.counters.cut_off += 1;
        return Progress::Close;
    }
    let is_paused = client.session.waits == Waits::Pause;
    if client.session.waits != Waits::Nothing && (guc::enabled() || !is_paused) {
        let mut none = Writer::new(client.session.protocol, 0);
        if send(core, client, &mut none, client.is_amid_reply()).is_err() {
            return Progress::Close;
        }
        let is_gone = client.hung_up || client.unsent() == 0 && is_gone(client);
        return match client.half_closed && is_gone {
            true => Progress::Close,
            false => Progress::Done,
        };
    }
    let room = core.limits.output.saturating_sub(client.unsent());
    let mut replies = core.take_replies(client.session.protocol, room);
    let amid_reply = client.is_amid_reply();
    tracking::set_author(core, client.session.id);
    let before = core.counters.commands;
    pause::at(Window::DrainToRead);
    let inside = core.peers.map(|peers| peers.gate.enter());
    let after = match guc::enabled() {
        true => run(core, client, read, now, &mut replies),
        false => turn_off(core, client, &mut replies),
    };
    drop(inside);
    tracking::set_no_author(core);
    let batch = core.counters.commands - before;
    core.counters.batches += u64::from(batch > 0);
    core.counters.largest_batch = core.counters.largest_batch.max(batch);
    core.counters.output += replies.as_bytes().len() as u64;
    let overflowed = replies.overflowed();
    let sent = send(core, client, &mut replies, amid_reply);
    core.give_replies(replies);
    if overflowed || sent.is_err() || client.killed {
        core.counters.cut_off += u64::from(overflowed);
        return Progress::Close;
    }
    match after {
        Progress::Close => {
            client.closing = true;
            leave(client)
        }
        after if tracking::is_unsettled(&client.session) => match tracking::settle(core, client) {
            Ok(false) => after,
            Ok(true) => Progress::More,
            Err(Progress::Starve) => Progress::Starve,
            Err(_) => Progress::Wait,
        },
        after => after,
    }
}

/// Sends replies, and the client's pending messages. Sends invalidations before the replies, and again after the
/// replies if the client may have read the value before it changed. Never sends a message inside a reply.
fn send(
    core: &mut Core,
    client: &mut Connection,
    replies: &mut Writer,
    amid_reply: bool,
) -> std::io::Result<()> {
    if !fault::on(Fault::NotDrainedBeforeReply) {
        tracking::drain(core, Some(client));
    }
    if client.is_amid_reply() {
        return client.send_replies(replies);
    }
    let pushed = client.take_pushed();
    let again = tracking::again(&mut client.session, &pushed, !replies.as_bytes().is_empty());
    core.counters.output += pushed.len() as u64;
    if !amid_reply {
        client.send(&pushed)?;
    }
    client.send_replies(replies)?;
    if amid_reply {
        client.send(&pushed)?;
    }
    match fault::on(Fault::NotInvalidatedAgain) {
        true => Ok(()),
        false => client.send(&again),
    }
}

/// Disconnects a client because `pgcache.enabled` is off. The client still gets the reply to a command that an executor
/// has run.
fn turn_off(core: &mut Core, client: &mut Connection, replies: &mut Writer) -> Progress {
    offload::reply(core, client, replies);
    if !client.is_amid_reply() {
        replies.error(&[b"ERR the Redis protocol is disabled: pgcache.enabled is off"]);
    }
    Progress::Close
}

/// Returns the progress of a connection that is to be closed once the last replies are sent.
fn leave(client: &Connection) -> Progress {
    match client.unsent() {
        0 => Progress::Close,
        _ => Progress::Done,
    }
}

/// Returns whether the socket has an error, so that the peer cannot receive replies. A peer that has only stopped
/// sending may still wait for replies.
fn is_gone(client: &Connection) -> bool {
    !matches!(client.socket.take_error(), Ok(None))
}

fn run(
    core: &mut Core,
    client: &mut Connection,
    read: &mut Read,
    began: Instant,
    replies: &mut Writer,
) -> Progress {
    let mut turn = Turn {
        began,
        looked: began,
        commands: 0,
        pending: None,
    };
    offload::reply(core, client, replies);
    let progress = match read.received {
        Received::End => return Progress::Close,
        // Only a handshake or TLS records without data have arrived.
        Received::Nothing if client.hungry && client.readable => return Progress::More,
        Received::Nothing if client.hungry => return Progress::Done,
        Received::Nothing => run_input(core, client, read, &mut turn, replies),
        Received::Bytes(count) => {
            core.counters.input += count as u64;
            client.session.activity.last_received = began;
            run_read(core, client, read, &mut turn, replies)
        }
    };
    client.hungry = matches!(progress, Progress::Done);
    after(client, progress)
}

/// Runs the input that was read, which may be the rest of a request.
fn run_read(
    core: &mut Core,
    client: &mut Connection,
    read: &mut Read,
    turn: &mut Turn,
    replies: &mut Writer,
) -> Progress {
    let begins = client.input.is_empty();
    let mut batch = std::mem::take(&mut read.batch);
    let (used, ended) = match begins {
        true => commands(core, client, &mut batch, read.bytes(), turn, replies),
        false => (0, Progress::Done),
    };
    read.batch = batch;
    if !client.keep(read.bytes().get(used..).unwrap_or_default()) {
        Broken::OutOfMemory.write(replies);
        return Progress::Close;
    }
    match begins || client.input.len() < client.parser.needed() {
        true => ended,
        false => run_input(core, client, read, turn, replies),
    }
}

/// Returns the progress of a client after its turn. If all its requests have run but the socket may hold more, the
/// client needs another turn.
fn after(client: &Connection, progress: Progress) -> Progress {
    match progress {
        Progress::Done if client.readable => Progress::More,
        progress => progress,
    }
}

/// Runs the rest of earlier input.
fn run_input(
    core: &mut Core,
    client: &mut Connection,
    read: &mut Read,
    turn: &mut Turn,
    replies: &mut Writer,
) -> Progress {
    read.batch.clear();
    let input = std::mem::take(&mut client.input);
    let (used, ended) = commands(core, client, &mut read.batch, &input, turn, replies);
    client.input = input;
    client.used(used);
    ended
}

/// The resources that a turn has used, and the commands that it offloads.
struct Turn {
    began: Instant,
    /// The time at which the clock was last read.
    looked: Instant,
    commands: u32,
    /// Commands to offload to an executor.
    pending: Option<Box<PendingBatch>>,
}

impl Turn {
    /// Counts a command, and returns whether it is within the bounds.
    fn goes_on(&mut self, replies: &Writer) -> bool {
        self.commands += 1;
        let look = self.commands.is_multiple_of(LOOK);
        self.commands <= COMMANDS && replies.as_bytes().len() < SEND && !(look && self.is_late())
    }

    fn is_late(&mut self) -> bool {
        self.looked = Instant::now();
        self.looked - self.began > LONGEST
    }
}

/// Runs the commands in a buffer, and offloads the commands for an executor. Returns the number of bytes whose requests
/// are done. [`Progress::Done`] means that the rest is not a complete request.
fn commands(
    core: &mut Core,
    client: &mut Connection,
    batch: &mut Batch,
    buffer: &[u8],
    turn: &mut Turn,
    replies: &mut Writer,
) -> (usize, Progress) {
    // A client with prefixes is settled before its commands run. But if an executor's reply is already written, the
    // invalidations must follow this reply, so the client is settled after the reply is sent.
    let settled = match replies.as_bytes().is_empty() {
        true => tracking::settle_before(core, client),
        false => Ok(()),
    };
    match settled {
        Ok(()) => {}
        Err(Progress::Starve) => return (0, Progress::Starve),
        Err(_) => return (0, Progress::Wait),
    }
    let mut input = Requests {
        batch,
        buffer,
        batch_at: 0,
        at: 0,
        is_of_batch: false,
    };
    let progress = requests(core, client, &mut input, turn, replies);
    match turn.pending.take() {
        None => (input.at, progress),
        Some(pending) => submit(core, client, input, *pending, replies),
    }
}

/// Submits a batch that no further command joins.
fn submit(
    core: &mut Core,
    client: &mut Connection,
    input: Requests<'_>,
    mut pending: PendingBatch,
    replies: &mut Writer,
) -> (usize, Progress) {
    let collected = pending.collected.take();
    let sent = input.buffer.get(pending.from..input.at);
    let requests = collected.as_deref().unwrap_or(sent.unwrap_or_default());
    if requests.len() > core.submitter.work_queue.batches.longest() {
        replies.error(&[b"ERR the commands are too long for a table cache: raise pgcache.resp_max_request and restart the server"]);
        return (input.at, Progress::More);
    }
    if offload::submit(core, &mut client.session, &pending, requests) {
        return (input.at, Progress::Wait);
    }
    if pending.work == Work::Exec {
        // The client tries again, as after any aborted EXEC.
        replies
            .error(&[b"EXECABORT Transaction discarded because the server has no room for it now"]);
        return (input.at, Progress::More);
    }
    // The requests are parsed again when the queue may have room.
    input.batch.clear();
    client.parser = Parser::new(Limits::new(core.limits.request));
    (pending.from, Progress::Starve)
}

/// The requests in a client's input. Most requests are split in one batch before they run; the parser splits long and
/// unusual requests one by one.
struct Requests<'a> {
    batch: &'a mut Batch,
    buffer: &'a [u8],
    /// The position of the batch in the buffer.
    batch_at: usize,
    /// The position of the next request in the buffer.
    at: usize,
    /// Whether the last request was part of the batch.
    is_of_batch: bool,
}

impl Requests<'_> {
    /// Returns the next request and its end in the buffer. Returns None if the rest is not a complete request.
    #[inline]
    fn next<'r>(
        &'r mut self,
        session: &Session,
        parser: &'r mut Parser,
        longest: usize,
    ) -> Result<Option<(Args<'r>, usize)>, Broken> {
        let left = self.buffer.get(self.at..).unwrap_or_default();
        let limits = match session.login.role {
            Some(_) => Limits::new(longest),
            None => Limits::unauthenticated(UNAUTHENTICATED),
        };
        if session.login.role.is_none() {
            // A client that has just lost its role has the limits of an unauthenticated client from here on.
            self.batch.clear();
        } else if self.batch.is_empty()
            && parser.is_between()
            && session.unfinished.continued.is_none()
        {
            // The parser handles a command that runs in pieces, because the parser keeps the positions of the arguments
            // between turns.
            self.batch_at = self.at;
            self.batch.cut(left, &limits);
            read_batch::prefetch(session, self.batch, left);
        }
        let cut = self.buffer.get(self.batch_at..).unwrap_or_default();
        if let Some(request) = self.batch.next(cut) {
            self.is_of_batch = true;
            return Ok(Some((request.args, self.at + request.used)));
        }
        self.is_of_batch = false;
        parser.set_limits(limits);
        let request = parser.next(left)?;
        Ok(request.map(|request| (request.args, self.at + request.used)))
    }

    /// Puts the last request back, because it is unfinished: `next` returns it again.
    fn again(&mut self, parser: &mut Parser) {
        match self.is_of_batch {
            true => self.batch.again(),
            false => parser.again(),
        }
    }
}

/// Runs requests until one cannot run now. Collects the commands for an executor in the turn.
fn requests(
    core: &mut Core,
    client: &mut Connection,
    input: &mut Requests<'_>,
    turn: &mut Turn,
    replies: &mut Writer,
) -> Progress {
    let (session, parser) = (&mut client.session, &mut client.parser);
    core.now = clock::now();
    // Another network process may have begun a pause since the turn began.
    core.look_at_pause();
    let buffer = input.buffer;
    loop {
        let from = input.at;
        let (args, end) = match input.next(session, parser, core.limits.request) {
            Ok(Some(request)) => request,
            Ok(None) => return Progress::Done,
            Err(broken) => {
                let has_pending = turn.pending.is_some();
                return on_broken(core, session, parser, has_pending, broken, input, replies);
            }
        };
        if args.is_empty() {
            input.at = end;
            continue;
        }
        // Executors parse only arrays, the form in which programs send requests, and no inline commands.
        let is_line = buffer.get(from) != Some(&b'*');
        if let Some(pending) = &mut turn.pending {
            if is_line || !offload::joins(core, session, pending, args, end) {
                input.again(parser);
                return Progress::More;
            }
            input.at = end;
            continue;
        }
        if !turn.goes_on(replies) {
            return Progress::More;
        }
        let before = replies.as_bytes().len();
        match dispatch::command(core, session, args, replies) {
            Progress::Offload(mut pending) => {
                replies.rewind(before);
                if is_line && pending.collected.is_none() {
                    args.encode(pending.collected.insert(Vec::new()));
                    pending.is_full = true;
                }
                let is_full = pending.is_full;
                pending.from = from;
                turn.pending = Some(pending);
                input.at = end;
                if is_full {
                    return Progress::More;
                }
            }
            progress @ (Progress::Done | Progress::Close) => {
                input.at = end;
                end_command(core, session, turn, end - from, before, replies);
                if matches!(progress, Progress::Close) || replies.overflowed() {
                    return Progress::Close;
                }
            }
            progress => {
                input.again(parser);
                if session.replies != Replies::On {
                    replies.rewind(before);
                }
                slow_commands::goes_on(session, turn.looked);
                // The next piece of a long command runs in this turn while time is left.
                if !matches!(progress, Progress::More) || turn.is_late() {
                    return progress;
                }
            }
        }
    }
}

/// Finishes an answered command, whose request has `used` bytes and whose reply begins at `before`: counts it, and
/// removes the reply if the client wants none.
fn end_command(
    core: &mut Core,
    session: &mut Session,
    turn: &mut Turn,
    used: usize,
    before: usize,
    replies: &mut Writer,
) {
    let written = replies.as_bytes().len().saturating_sub(before);
    turn.looked = slow_commands::done(core, session, used + written, turn.looked);
    core.counters.commands += 1;
    session.activity.commands += 1;
    let is_loud = std::mem::take(&mut session.is_loud);
    if session.replies != Replies::On {
        if !is_loud {
            replies.rewind(before);
        }
        session.replies = match session.replies {
            Replies::Skip => Replies::On,
            Replies::SkipNext => Replies::Skip,
            replies => replies,
        };
    }
    session.state.write_own_messages(replies);
}

/// Returns the progress of a client whose input is not a valid request.
fn on_broken(
    core: &mut Core,
    session: &mut Session,
    parser: &mut Parser,
    has_pending: bool,
    broken: Broken,
    input: &mut Requests<'_>,
    replies: &mut Writer,
) -> Progress {
    match broken {
        // It is not known yet whether the client gets the default role without authentication. If it does, it may send
        // longer requests than an unauthenticated client.
        Broken::UnauthenticatedCount | Broken::UnauthenticatedLength
            if session.login.implicit == Implicit::Unknown
                && core.limits.default_role.is_some() =>
        {
            *parser = Parser::new(Limits::unauthenticated(UNAUTHENTICATED));
            client_permissions::request_implicit(core, session)
        }
        // The commands before the invalid input run first.
        _ if has_pending => {
            *parser = Parser::new(Limits::new(core.limits.request));
            Progress::Done
        }
        broken => {
            broken.write(replies);
            input.at = input.buffer.len();
            Progress::Close
        }
    }
}
