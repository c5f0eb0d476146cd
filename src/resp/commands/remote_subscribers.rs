//! Channels where there are several network processes: what clients of the others read, and messages to them.
//!
//! A message goes to the network processes whose clients read it, by the ring that messages of SQL go by: a network process
//! that reads none of it hears nothing. Who has got the reply to SUBSCRIBE is in the table of its network process, so
//! whatever is published after that reaches it, and is counted.

use std::cell::Cell;
use std::collections::BTreeSet;

use pgcache_resp::matches_within;

use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::resp::messages::{self, Messages};
use crate::pg::resp::multi_process::MultiProcess;
use crate::pg::resp::readers::Readers;
use crate::pg::worker::background;

/// The two sorts of subscriptions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Channel,
    Pattern,
}

/// What a network process knows of the others.
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

/// Who of the other network processes reads a channel.
#[derive(Default)]
pub struct Heard {
    pub readers: usize,
    /// Their network processes, and those of which it is not known.
    networks: Vec<usize>,
}

/// This process is the network process of this number, and nobody reads anything in it.
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

/// Says that so many clients of this network process read a name; `all` gives all names.
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
    /// The other network processes that are there, and what is read in them.
    fn others(&self) -> impl Iterator<Item = (usize, &'static Readers)> {
        let (own, registry) = (self.own, self.registry);
        let all = self.peers.readers.iter().enumerate();
        all.filter(move |(number, _)| *number != own && registry.pid(*number) != 0)
    }
}

/// Finds the readers of a channel in the other network processes. None: `looks` does not suffice for all patterns.
pub fn heard(channel: &[u8], looks: &mut usize) -> Option<Heard> {
    let mut heard = Heard::default();
    let Some(elsewhere) = ELSEWHERE.get() else {
        return Some(heard);
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
        heard.readers += count;
        if count > 0 || direct.is_none() || !is_complete {
            heard.networks.push(number);
        }
    }
    Some(heard)
}

impl Heard {
    /// Whether a message is too long for the ring that it would have to go by.
    pub fn is_too_long(&self, channel: &[u8], text: &[u8]) -> bool {
        !self.networks.is_empty() && messages::cost(channel.len(), text.len()) > messages::MOST
    }

    /// Sends a message to those who read it, if there are any.
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

/// How many clients of other network processes have subscribed to a channel.
pub fn subscribers(channel: &[u8]) -> usize {
    let count = |elsewhere: Elsewhere| {
        let others = elsewhere.others();
        others
            .map(|(_, readers)| readers.channels.count(channel).unwrap_or(0))
            .sum()
    };
    ELSEWHERE.get().map_or(0, count)
}

/// Adds the names that clients of other network processes read.
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
