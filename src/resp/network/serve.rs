//! A client's turn: runs commands of what was read, within bounds, and sends once.

use std::time::{Duration, Instant};

use pgcache_resp::{Batch, Broken, Limits, Parser, Writer};

use crate::pg::session::clock;
use crate::pg::session::fault::{self, Fault};
use crate::pg::session::pause::{self, Window};
use crate::resp::execute;
use crate::resp::execute::offload;
use crate::resp::network::handshake;
use crate::resp::server::slow_log;
use crate::resp::session::connection::{After, Came, Connection, UNAUTHENTICATED};
use crate::resp::session::read_batch::{self, Read};
use crate::resp::session::{Implicit, Replies, Waits};
use crate::resp::shared::Core;
use crate::resp::shared::authentication::{self, Step};
use crate::resp::shared::tracking;

/// A turn ends after so many commands, or so much time: others wait.
const COMMANDS: u32 = 512;
const LONGEST: Duration = Duration::from_micros(200);
/// After so many commands a turn looks at the time.
const LOOK: u32 = 16;
/// Replies are sent when there are so many bytes of them.
const SEND: usize = 256 << 10;

/// Where a run over the input ended.
enum Ended {
    /// What is left is no whole request.
    Hungry,
    /// The turn's bounds.
    Bound,
    Wait,
    Starve,
    Close,
}

/// Serves a client that has something to do, or of which something was read.
pub fn serve(core: &mut Core, client: &mut Connection, read: &mut Read, now: Instant) -> After {
    match serve_once(core, client, read, now) {
        // Nobody tells that the socket takes more: it was not asked to take all.
        After::Rest | After::Starve if client.may_send() => After::Again,
        after => after,
    }
}

fn serve_once(core: &mut Core, client: &mut Connection, read: &mut Read, now: Instant) -> After {
    if client.flush().is_err() || client.killed {
        return After::End;
    }
    if client.closing {
        return leave(client);
    }
    if let Some(after) = handshake::begin(core, client) {
        return after;
    }
    if client.unsent() > core.limits.output {
        core.counters.cut_off += 1;
        return After::End;
    }
    if client.session.waits != Waits::Nothing {
        let mut none = Writer::new(client.session.protocol, 0);
        if send(core, client, &mut none, client.is_amid_reply()).is_err() {
            return After::End;
        }
        let is_gone = client.hung_up || client.unsent() == 0 && is_gone(client);
        return match client.half_closed && is_gone {
            true => After::End,
            false => After::Rest,
        };
    }
    let room = core.limits.output.saturating_sub(client.unsent());
    let mut replies = core.take_replies(client.session.protocol, room);
    let amid_reply = client.is_amid_reply();
    tracking::set_author(core, client.session.id);
    let before = core.counters.commands;
    pause::at(Window::DrainToRead);
    let inside = core.peers.map(|peers| peers.gate.enter());
    let after = run(core, client, read, now, &mut replies);
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
        return After::End;
    }
    match after {
        After::End => {
            client.closing = true;
            leave(client)
        }
        after if tracking::is_unsettled(&client.session) => match tracking::settle(core, client) {
            Ok(false) => after,
            Ok(true) => After::Again,
            Err(Step::Starve) => After::Starve,
            Err(_) => After::Rest,
        },
        after => after,
    }
}

/// Sends replies, and the messages that wait: those of changes before them, and again after them where
/// they tell of what may have been read before it changed. Inside of a reply none is sent.
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
    match fault::on(Fault::NotToldAgain) {
        true => Ok(()),
        false => client.send(&again),
    }
}

/// Ends once the last replies are sent.
fn leave(client: &Connection) -> After {
    match client.unsent() {
        0 => After::End,
        _ => After::Rest,
    }
}

/// Whether the other side is gone, and does not only send nothing more. It may have sent commands whose
/// replies it waits for.
fn is_gone(client: &Connection) -> bool {
    !matches!(client.socket.take_error(), Ok(None))
}

fn run(
    core: &mut Core,
    client: &mut Connection,
    read: &mut Read,
    began: Instant,
    replies: &mut Writer,
) -> After {
    let mut turn = Turn {
        began,
        looked: began,
        commands: 0,
    };
    offload::reply(core, client, replies);
    let ended = match read.came {
        Came::End => return After::End,
        // A handshake, or what belongs to the encryption alone, was all there was.
        Came::Nothing if client.hungry && client.readable => return After::Again,
        Came::Nothing if client.hungry => return After::Rest,
        Came::Nothing => run_input(core, client, read, &mut turn, replies),
        Came::Bytes(count) => {
            core.counters.input += count as u64;
            client.session.last_heard = began;
            run_read(core, client, read, &mut turn, replies)
        }
    };
    client.hungry = matches!(ended, Ended::Hungry);
    after(client, &ended)
}

/// Runs what came, which may be the rest of a request.
fn run_read(
    core: &mut Core,
    client: &mut Connection,
    read: &mut Read,
    turn: &mut Turn,
    replies: &mut Writer,
) -> Ended {
    let begins = client.input.is_empty();
    let mut batch = std::mem::take(&mut read.batch);
    let (used, ended) = match begins {
        true => commands(core, client, &mut batch, read.bytes(), turn, replies),
        false => (0, Ended::Hungry),
    };
    read.batch = batch;
    if !client.keep(read.bytes().get(used..).unwrap_or_default()) {
        Broken::OutOfMemory.write(replies);
        return Ended::Close;
    }
    match begins || client.input.len() < client.parser.needed() {
        true => ended,
        false => run_input(core, client, read, turn, replies),
    }
}

fn after(client: &Connection, ended: &Ended) -> After {
    match ended {
        Ended::Hungry if client.readable => After::Again,
        Ended::Hungry | Ended::Wait => After::Rest,
        Ended::Bound => After::Again,
        Ended::Starve => After::Starve,
        Ended::Close => After::End,
    }
}

/// Runs what is left of what came before.
fn run_input(
    core: &mut Core,
    client: &mut Connection,
    read: &mut Read,
    turn: &mut Turn,
    replies: &mut Writer,
) -> Ended {
    read.batch.clear();
    let input = std::mem::take(&mut client.input);
    let (used, ended) = commands(core, client, &mut read.batch, &input, turn, replies);
    client.input = input;
    client.used(used);
    ended
}

/// What a turn has used of its bounds.
struct Turn {
    began: Instant,
    /// When the clock was asked last.
    looked: Instant,
    commands: u32,
}

impl Turn {
    /// Whether one more command is within the bounds.
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

/// Runs the commands in a buffer; how many bytes of it they were. What an executor is to run is handed over.
fn commands(
    core: &mut Core,
    client: &mut Connection,
    batch: &mut Batch,
    buffer: &[u8],
    turn: &mut Turn,
    replies: &mut Writer,
) -> (usize, Ended) {
    // An error of another client's turn may have left its own.
    core.pending = None;
    // What it is owed for a reply that has come goes after that.
    let settled = match replies.as_bytes().is_empty() {
        true => tracking::settle_before(core, client),
        false => Ok(()),
    };
    match settled {
        Ok(()) => {}
        Err(Step::Starve) => return (0, Ended::Starve),
        Err(_) => return (0, Ended::Wait),
    }
    let (at, ended) = requests(core, client, batch, buffer, turn, replies);
    let Some(mut pending) = core.pending.take() else {
        return (at, ended);
    };
    let collected = pending.collected.take();
    let sent = buffer.get(pending.from..at).unwrap_or_default();
    let requests = collected.as_deref().unwrap_or(sent);
    if requests.len() > core.submitter.work_queue.longest() {
        replies.error(&[b"ERR the commands are too long for a table cache: raise pgcache.resp_max_request and restart the server"]);
        return (at, Ended::Bound);
    }
    if offload::submit(core, &mut client.session, &pending, requests) {
        return (at, Ended::Wait);
    }
    if collected.is_some() {
        // The client tries again, as after any EXEC that was given up.
        replies
            .error(&[b"EXECABORT Transaction discarded because the server has no room for it now"]);
        return (at, Ended::Bound);
    }
    // They are cut once more when there may be room.
    batch.clear();
    client.parser = Parser::new(Limits::new(core.limits.request));
    (pending.from, Ended::Starve)
}

/// Runs the commands in a buffer, up to one that is not to be run now. The first may have been cut already.
fn requests(
    core: &mut Core,
    client: &mut Connection,
    batch: &mut Batch,
    buffer: &[u8],
    turn: &mut Turn,
    replies: &mut Writer,
) -> (usize, Ended) {
    let (session, parser) = (&mut client.session, &mut client.parser);
    core.now = clock::now();
    // Another network process may have begun a pause since the turn began.
    core.look_at_pause();
    // Where the batch begins.
    let mut from = 0;
    let mut at = 0;
    loop {
        let left = buffer.get(at..).unwrap_or_default();
        let limits = match session.role {
            Some(_) => Limits::new(core.limits.request),
            None => Limits::unauthenticated(UNAUTHENTICATED),
        };
        if session.role.is_none() {
            // It was one until now: others bounds count from here on.
            batch.clear();
        } else if batch.is_empty() && parser.is_between() && session.continued.is_none() {
            // A command that is done in pieces is the parser's: it keeps where the arguments are from turn to turn.
            from = at;
            batch.cut(left, &limits);
            read_batch::ask(session, batch, left);
        }
        let (in_batch, cut) = match batch.next(buffer.get(from..).unwrap_or_default()) {
            Some(request) => (true, Ok(Some(request))),
            None => {
                parser.set_limits(limits);
                (false, parser.next(left))
            }
        };
        let request = match cut {
            Ok(Some(request)) => request,
            Ok(None) => return (at, Ended::Hungry),
            // Who may be the default role without a word may send more than a stranger.
            Err(Broken::UnauthenticatedCount | Broken::UnauthenticatedLength)
                if session.implicit == Implicit::Unknown && core.limits.default_role.is_some() =>
            {
                *parser = Parser::new(Limits::unauthenticated(UNAUTHENTICATED));
                let ended = match authentication::ask_implicit(core, session) {
                    Step::Wait => Ended::Wait,
                    Step::Starve => Ended::Starve,
                    _ => Ended::Close,
                };
                return (at, ended);
            }
            // What came before it is dealt with first.
            Err(_) if core.pending.is_some() => {
                *parser = Parser::new(limits);
                return (at, Ended::Hungry);
            }
            Err(broken) => {
                broken.write(replies);
                return (buffer.len(), Ended::Close);
            }
        };
        let used = request.used;
        if request.args.is_empty() {
            at += used;
            continue;
        }
        if core.pending.is_some() {
            if !offload::joins(core, session, request.args, at + used) {
                match in_batch {
                    true => batch.again(),
                    false => parser.again(),
                }
                return (at, Ended::Bound);
            }
            at += used;
            continue;
        }
        if !turn.goes_on(replies) {
            return (at, Ended::Bound);
        }
        let before = replies.as_bytes().len();
        let step = execute::command(core, session, request.args, replies);
        if matches!(step, Step::Offload) {
            replies.rewind(before);
            let from = at;
            at += used;
            match &mut core.pending {
                Some(pending) if pending.is_full => {
                    pending.from = from;
                    return (at, Ended::Bound);
                }
                Some(pending) => pending.from = from,
                None => {}
            }
            continue;
        }
        if !matches!(step, Step::Done | Step::Close) {
            match in_batch {
                true => batch.again(),
                false => parser.again(),
            }
            if session.replies != Replies::On {
                replies.rewind(before);
            }
            slow_log::goes_on(session, turn.looked);
            // A piece of a long one: the next is done in this turn while there is time.
            let ended = match step {
                Step::Wait => Ended::Wait,
                Step::Starve => Ended::Starve,
                _ if turn.is_late() => Ended::Bound,
                _ => continue,
            };
            return (at, ended);
        }
        let written = replies.as_bytes().len().saturating_sub(before);
        turn.looked = slow_log::done(core, session, used + written, turn.looked);
        at += used;
        core.counters.commands += 1;
        session.commands += 1;
        let is_loud = std::mem::take(&mut session.is_loud);
        match session.replies {
            Replies::On => {}
            Replies::Off | Replies::Skip => {
                if !is_loud {
                    replies.rewind(before);
                }
                if session.replies == Replies::Skip {
                    session.replies = Replies::On;
                }
            }
            Replies::SkipNext => {
                if !is_loud {
                    replies.rewind(before);
                }
                session.replies = Replies::Skip;
            }
        }
        session.state.write_own_messages(replies);
        if matches!(step, Step::Close) {
            return (at, Ended::Close);
        }
        if replies.overflowed() {
            return (at, Ended::Close);
        }
    }
}
