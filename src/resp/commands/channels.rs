//! Runs PUBLISH, SUBSCRIBE and related commands: keeps the subscriptions of this process's clients, and sends messages
//! to them.
//!
//! The [`Hub`] writes to connections; `remote_subscribers` sends to clients of other processes. All subscribers in this
//! process receive a message before the publisher receives its reply. Messages are not stored.

use std::collections::BTreeSet;
use std::ops::Bound;

use pgcache_resp::{Args, Command, Parsed, Protocol, Writer, matches_within};

use super::connection_state::State;
use super::subscriptions::{Subscriptions, with};
use crate::cache::commit::publish;
use crate::resp::commands::command_error::{CommandError, Done};
use crate::resp::commands::remote_subscribers::{self, Sort};

/// The maximum length in bytes of a channel's name and of a pattern.
const LONGEST_NAME: usize = publish::LONGEST_CHANNEL;
/// The number of bytes that one PUBLISH or PUBSUB may compare with patterns, which takes a few milliseconds.
pub const LOOKS: usize = 2 << 20;
/// The number of channels and patterns to which one connection may subscribe.
const MOST: usize = 4096;
/// The maximum number of bytes of the names of one connection's channels and patterns.
const MOST_BYTES: usize = 1 << 20;

/// Sends to connections, which it finds by the ids of their clients.
pub trait Hub {
    /// Writes to a connection other than the one whose command runs.
    fn send(&mut self, client: u64, write: &dyn Fn(&mut Writer));
}

/// Returns whether a connection may only subscribe, unsubscribe, ping and quit: a RESP2 connection with a subscription.
pub fn is_reader(state: &State, protocol: Protocol) -> bool {
    protocol == Protocol::Resp2 && state.subscriptions().is_some()
}

/// Writes the error for a command that a connection of [`is_reader`] may not run.
pub fn refuse(command: &str, out: &mut Writer) {
    let words: &[u8] = b"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
    out.error(&[b"ERR Can't execute '", command.as_bytes(), words]);
}

/// Writes Redis' error for EXEC on a connection of [`is_reader`].
pub fn refuse_exec(out: &mut Writer) {
    out.error(&[b"EXECABORT Transaction discarded because of: Can't execute 'exec': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"]);
}

/// Replies to PING on a connection of [`is_reader`].
pub fn pong(message: Option<&[u8]>, out: &mut Writer) {
    out.push_message(2);
    out.bulk(b"pong");
    out.bulk(message.unwrap_or_default());
}

/// Runs a command on channels.
pub fn run(
    command: &Parsed<'_>,
    client: u64,
    state: &mut State,
    hub: &mut dyn Hub,
    out: &mut Writer,
) {
    match &command.command {
        Command::Subscribe { channels } => {
            subscribe(Sort::Channel, *channels, client, state, out);
        }
        Command::SubscribePatterns { patterns } => {
            subscribe(Sort::Pattern, *patterns, client, state, out);
        }
        Command::Unsubscribe { channels } => unsubscribe(Sort::Channel, *channels, state, out),
        Command::UnsubscribePatterns { patterns } => {
            unsubscribe(Sort::Pattern, *patterns, state, out);
        }
        Command::Publish { channel, message } => {
            // As in Redis since 7.2, a client's message to itself follows the client's reply, or the reply to the whole
            // EXEC.
            let before = out.as_bytes().len();
            match publish_to_all(channel, message, client, hub, out) {
                Ok(readers) => {
                    let own = out.as_bytes().get(before..).unwrap_or_default();
                    // If the messages exceed the output limit, the client is disconnected.
                    if state.keep_own_messages(own, out.room()) {
                        out.rewind(before);
                    }
                    out.integer(i64::try_from(readers).unwrap_or(i64::MAX));
                }
                Err(error) => error.write(out),
            }
        }
        _ => pubsub(command.entry.name, command.args.from(2), out),
    }
}

/// Runs PUBLISH. Finds all subscribers before it writes the first message, so that a refused message reaches no client.
fn publish_to_all<'a>(
    channel: &[u8],
    message: &[u8],
    client: u64,
    hub: &mut dyn Hub,
    out: &mut Writer,
) -> Done<'a, usize> {
    if channel.len() > LONGEST_NAME {
        return Err(CommandError::LongName);
    }
    let mut looks = LOOKS;
    let remote =
        remote_subscribers::readers_of(channel, &mut looks).ok_or(CommandError::ComplexPatterns)?;
    if remote.is_too_long(channel, message) {
        return Err(CommandError::TooLongForOthers);
    }
    let direct = direct_readers(channel);
    let (by_pattern, rest) = matching(channel, None, &mut looks);
    if rest.is_some() {
        return Err(CommandError::ComplexPatterns);
    }
    let readers = hand_out(channel, message, direct, by_pattern, client, hub, out);
    remote.send(channel, message);
    Ok(remote.readers + readers)
}

/// Returns the number of clients that have subscribed to a channel, directly or by a pattern. Makes no more comparisons
/// than one PUBLISH may make.
pub fn count_readers(channel: &[u8]) -> usize {
    let mut looks = LOOKS;
    let elsewhere =
        remote_subscribers::readers_of(channel, &mut looks).map_or(0, |remote| remote.readers);
    let (by_pattern, _) = matching(channel, None, &mut looks);
    let by_pattern: usize = by_pattern.iter().map(|(_, clients)| clients.len()).sum();
    elsewhere + direct_readers(channel).len() + by_pattern
}

fn write_count(word: &str, name: Option<&[u8]>, count: usize, out: &mut Writer) {
    out.push_message(3);
    out.bulk(word.as_bytes());
    out.bulk_or_null(name);
    out.integer(count as i64);
}

fn subscribe(sort: Sort, names: Args<'_>, client: u64, state: &mut State, out: &mut Writer) {
    let word = match sort {
        Sort::Channel => "subscribe",
        Sort::Pattern => "psubscribe",
    };
    let own = state
        .subscriptions_mut()
        .get_or_insert_with(|| Subscriptions::of(client));
    for name in names.iter() {
        if name.len() > LONGEST_NAME {
            CommandError::LongName.write(out);
            break;
        }
        if own.count() >= MOST || own.bytes() + name.len() > MOST_BYTES {
            CommandError::TooManyChannels.write(out);
            break;
        }
        own.add(sort, name);
        write_count(word, Some(name), own.count(), out);
    }
    if own.count() == 0 {
        *state.subscriptions_mut() = None;
    }
}

/// Removes the subscriptions to these names; if no names are given, all subscriptions of this sort.
fn unsubscribe(sort: Sort, names: Args<'_>, state: &mut State, out: &mut Writer) {
    let word = match sort {
        Sort::Channel => "unsubscribe",
        Sort::Pattern => "punsubscribe",
    };
    let Some(own) = state.subscriptions_mut() else {
        match names.is_empty() {
            true => write_count(word, None, 0, out),
            false => names
                .iter()
                .for_each(|name| write_count(word, Some(name), 0, out)),
        }
        return;
    };
    if names.is_empty() {
        let all = std::mem::take(own.names(sort));
        let mut left = own.count() + all.len();
        if all.is_empty() {
            write_count(word, None, left, out);
        }
        for name in all {
            own.forget(sort, &name);
            left -= 1;
            write_count(word, Some(&name), left, out);
        }
    }
    for name in names.iter() {
        own.remove(sort, name);
        write_count(word, Some(name), own.count(), out);
    }
    if own.count() == 0 {
        *state.subscriptions_mut() = None;
    }
}

/// Patterns, and the clients of each.
type ByPattern = Vec<(Box<[u8]>, Vec<u64>)>;

fn direct_readers(channel: &[u8]) -> Vec<u64> {
    with(|table| table.channels.get(channel).cloned().unwrap_or_default())
}

/// Returns the patterns after `after` that match a channel, within `looks` comparisons. Also returns the last compared
/// pattern if `looks` was not enough for all patterns.
fn matching(
    channel: &[u8],
    after: Option<&[u8]>,
    looks: &mut usize,
) -> (ByPattern, Option<Box<[u8]>>) {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    with(|table| {
        let mut found = Vec::new();
        let mut last: Option<&[u8]> = after;
        for (pattern, clients) in table.patterns.range::<[u8], _>((from, Bound::Unbounded)) {
            match matches_within(pattern, channel, looks) {
                Some(true) => found.push((pattern.clone(), clients.clone())),
                Some(false) => {}
                None => return (found, Some(last.unwrap_or_default().into())),
            }
            last = Some(pattern);
        }
        (found, None)
    })
}

/// Sends a message to these subscribers, and returns their number. A client that has also subscribed by a pattern
/// receives the message twice, as in Redis. The table must not be borrowed while the hub writes, because a client that
/// a write disconnects removes itself from the table.
fn hand_out(
    channel: &[u8],
    message: &[u8],
    direct: Vec<u64>,
    by_pattern: ByPattern,
    publisher: u64,
    hub: &mut dyn Hub,
    out: &mut Writer,
) -> usize {
    let mut readers = 0;
    let mut send = |client: u64, write: &dyn Fn(&mut Writer)| {
        readers += 1;
        match client == publisher {
            true => write(out),
            false => hub.send(client, write),
        }
    };
    for client in direct {
        send(client, &|out| {
            out.push_message(3);
            [b"message", channel, message]
                .iter()
                .for_each(|part| out.bulk(part));
        });
    }
    for (pattern, clients) in by_pattern {
        for client in clients {
            send(client, &|out| {
                out.push_message(4);
                [b"pmessage", &pattern[..], channel, message]
                    .iter()
                    .for_each(|part| out.bulk(part));
            });
        }
    }
    readers
}

/// Returns whether any client of this process has subscribed to a channel or a pattern.
pub fn has_readers() -> bool {
    with(|table| !table.channels.is_empty() || !table.patterns.is_empty())
}

/// Returns all clients of this process that have subscribed to a channel or a pattern.
pub fn readers() -> Vec<u64> {
    with(|table| {
        let lists = table.channels.values().chain(table.patterns.values());
        let mut clients: Vec<u64> = lists.flatten().copied().collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    })
}

/// Sends a message from outside this process to the process's subscribers or, if `after` is given, only to subscribers
/// by patterns after `after`. If comparing the patterns takes too long, returns the last compared pattern, from which a
/// later call continues.
pub fn publish_from_outside(
    channel: &[u8],
    message: &[u8],
    after: Option<&[u8]>,
    looks: &mut usize,
    hub: &mut dyn Hub,
) -> Option<Box<[u8]>> {
    // Nothing is written to this writer, because no client has the id 0.
    let mut nowhere = Writer::new(Protocol::Resp2, 0);
    let direct = match after {
        None => direct_readers(channel),
        Some(_) => Vec::new(),
    };
    let (by_pattern, rest) = matching(channel, after, looks);
    hand_out(channel, message, direct, by_pattern, 0, hub, &mut nowhere);
    rest
}

/// Runs PUBSUB.
fn pubsub(question: &str, args: Args<'_>, out: &mut Writer) {
    match question {
        "pubsub|channels" => {
            let pattern = args.get(0);
            let mut names: BTreeSet<Box<[u8]>> =
                with(|table| table.channels.keys().cloned().collect());
            remote_subscribers::add_names(Sort::Channel, &mut names);
            let mut looks = LOOKS;
            let mut matched = |name: &[u8]| {
                pattern.is_none_or(|pattern| {
                    // No client can have subscribed by a longer pattern.
                    pattern.len() <= LONGEST_NAME
                        && matches_within(pattern, name, &mut looks).unwrap_or(false)
                })
            };
            names.retain(|name| matched(name));
            if looks == 0 {
                return CommandError::ComplexPatterns.write(out);
            }
            out.array(names.len());
            names.iter().for_each(|name| out.bulk(name));
        }
        "pubsub|numsub" => {
            out.array(2 * args.len());
            for name in args.iter() {
                let own = with(|table| table.channels.get(name).map_or(0, Vec::len));
                let readers = own + remote_subscribers::subscribers(name);
                out.bulk(name);
                out.integer(readers as i64);
            }
        }
        "pubsub|numpat" => {
            let mut names: BTreeSet<Box<[u8]>> =
                with(|table| table.patterns.keys().cloned().collect());
            remote_subscribers::add_names(Sort::Pattern, &mut names);
            out.integer(names.len() as i64);
        }
        _ => {}
    }
}
