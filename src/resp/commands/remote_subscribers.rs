//! PUBLISH and SUBSCRIBE across network processes: finds the subscriptions of other processes' clients, and sends
//! messages to them.
//!
//! Each network process lists the channels of its clients in a table that the other processes read. A message goes only
//! to processes whose clients have subscribed to its channel, through the ring that also carries messages from SQL. A
//! process lists a client before the client receives the reply to SUBSCRIBE, so each later message reaches the client
//! and counts it.

use std::cell::Cell;
use std::collections::BTreeSet;

use pgcache_resp::matches_within;

use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::resp::messages::{self, Messages};
use crate::pg::resp::multi_process::MultiProcess;
use crate::pg::resp::subscribed_channels::Readers;
use crate::pg::worker::background;

/// The two sorts of subscriptions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Channel,
    Pattern,
}

/// This process's access to the other processes' subscribers and to the ring.
#[derive(Clone, Copy)]
struct Elsewhere {
    own: usize,
    peers: MultiProcess,
    registry: ClientRegistry,
    messages: Messages,
}

thread_local! {
    static ELSEWHERE: Cell<Option<Elsewhere>> = const { Cell::new(None) };
}

/// The subscribers of a channel in other network processes.
#[derive(Default)]
pub struct RemoteReaders {
    pub readers: usize,
    /// The processes of these subscribers, and the processes whose subscribers are unknown.
    networks: Vec<usize>,
}

/// Registers this process, whose index is `own`, with no subscribers yet.
pub fn begin(own: usize, registry: ClientRegistry, peers: Option<MultiProcess>) {
    let Some((peers, messages)) = peers.zip(Messages::of_server()) else {
        return;
    };
    if let Some(readers) = peers.readers.get(own) {
        readers.channels.clear();
        readers.patterns.clear();
    }
    ELSEWHERE.set(Some(Elsewhere {
        own,
        peers,
        registry,
        messages,
    }));
}

/// Publishes that `count` clients of this network process have subscribed to a name. `all` returns all names with their
/// counts.
pub fn note<'n, I: Iterator<Item = (&'n [u8], usize)>>(
    sort: Sort,
    name: &[u8],
    count: usize,
    all: impl Fn() -> I,
) {
    let Some(elsewhere) = ELSEWHERE.get() else {
        return;
    };
    if let Some(readers) = elsewhere.peers.readers.get(elsewhere.own) {
        match sort {
            Sort::Channel => readers.channels.set(name, count, all),
            Sort::Pattern => readers.patterns.set(name, count, all),
        }
    }
}

impl Elsewhere {
    /// Returns the other running network processes, and the names to which their clients have subscribed.
    fn others(&self) -> impl Iterator<Item = (usize, &'static Readers)> {
        let (own, registry) = (self.own, self.registry);
        let all = self.peers.readers.iter().enumerate();
        all.filter(move |(number, _)| *number != own && registry.pid(*number) != 0)
    }
}

/// Finds the subscribers of a channel in the other network processes. Returns None if `looks` comparisons are not
/// enough for all patterns.
pub fn readers_of(channel: &[u8], looks: &mut usize) -> Option<RemoteReaders> {
    let mut remote = RemoteReaders::default();
    let Some(elsewhere) = ELSEWHERE.get() else {
        return Some(remote);
    };
    for (number, readers) in elsewhere.others() {
        let direct = readers.channels.count(channel);
        let (patterns, is_complete) = readers.patterns.all();
        let mut count = direct.unwrap_or(0);
        for (pattern, readers) in &patterns {
            if matches_within(pattern, channel, looks)? {
                count += readers;
            }
        }
        remote.readers += count;
        if count > 0 || direct.is_none() || !is_complete {
            remote.networks.push(number);
        }
    }
    Some(remote)
}

impl RemoteReaders {
    /// Returns whether a message needs the ring and is too long for it.
    pub fn is_too_long(&self, channel: &[u8], text: &[u8]) -> bool {
        !self.networks.is_empty() && messages::cost(channel, text) > messages::MOST
    }

    /// Sends a message to the processes of the subscribers, if there are any.
    pub fn send(&self, channel: &[u8], text: &[u8]) {
        let Some(elsewhere) = ELSEWHERE.get().filter(|_| !self.networks.is_empty()) else {
            return;
        };
        elsewhere.messages.send_from(elsewhere.own, channel, text);
        for number in &self.networks {
            background::wake(elsewhere.registry.pid(*number));
        }
    }
}

/// Returns the number of clients of other network processes that have subscribed to a channel.
pub fn subscribers(channel: &[u8]) -> usize {
    let count = |elsewhere: Elsewhere| {
        let others = elsewhere.others();
        others
            .map(|(_, readers)| readers.channels.count(channel).unwrap_or(0))
            .sum()
    };
    ELSEWHERE.get().map_or(0, count)
}

/// Adds the names to which clients of other network processes have subscribed.
pub fn add_names(sort: Sort, names: &mut BTreeSet<Box<[u8]>>) {
    let Some(elsewhere) = ELSEWHERE.get() else {
        return;
    };
    for (_, readers) in elsewhere.others() {
        let (all, _) = match sort {
            Sort::Channel => readers.channels.all(),
            Sort::Pattern => readers.patterns.all(),
        };
        names.extend(all.into_iter().map(|(name, _)| name.into_boxed_slice()));
    }
}
