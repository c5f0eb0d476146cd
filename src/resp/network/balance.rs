//! Chooses the network process that serves a new connection. The first network process accepts all connections and
//! passes each, before it reads a byte, to the process with the fewest clients, which may be itself.
//!
//! The first process claims a place in the client registry before it passes a connection on. So it knows how many
//! clients each process has, including connections on their way, and the connection limit holds for all processes
//! together. A network process that ends loses the connections on their way to it; its successor releases their places.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use pgrx::PgSqlErrorCode;
use socket2::Socket;

use crate::guc::resp as settings;
use crate::pg::resp::client_registry::{Claimed, ClientRegistry};
use crate::pg::resp::fd_passing::{Inbox, Outbox};
use crate::pg::session::failure;

/// The pause before the next attempt to open the inbox or outbox.
const OPEN_AGAIN: Duration = Duration::from_secs(5);

/// The endpoints with which a network process passes connections on, or receives them.
pub struct Balancer {
    number: usize,
    all: usize,
    outbox: Option<Outbox>,
    inbox: Option<Inbox>,
    next_open: Instant,
    said: bool,
    /// Whether connections may be in the inbox.
    pub ready: bool,
}

impl Balancer {
    pub fn new(number: usize) -> Balancer {
        Balancer {
            number,
            all: settings::workers(),
            outbox: None,
            inbox: None,
            next_open: Instant::now(),
            said: false,
            ready: false,
        }
    }

    /// Returns whether this is the network process that listens and passes connections on.
    pub fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Returns when to try again to open this process's inbox or outbox, or None if it is open or not needed.
    pub fn next_open(&self) -> Option<Instant> {
        let is_open = match self.is_first() {
            true => self.outbox.is_some() || self.all == 1,
            false => self.inbox.is_some(),
        };
        (!is_open).then_some(self.next_open)
    }

    /// Opens the inbox or outbox. Logs an error once.
    pub fn open(&mut self, registry: &Registry, token: Token) {
        self.next_open = Instant::now() + OPEN_AGAIN;
        let opened = match self.is_first() {
            true => Outbox::new().map(|outbox| self.outbox = Some(outbox)),
            false => self.open_inbox(registry, token),
        };
        if let Err(error) = opened
            && !std::mem::replace(&mut self.said, true)
        {
            failure::warn(
                PgSqlErrorCode::ERRCODE_SYSTEM_ERROR,
                "a process of the Redis protocol cannot receive connections".into(),
                error.to_string(),
                "The other processes serve them. The process tries again every five seconds; check pg_stat_tmp in the data directory.",
            );
        }
    }

    fn open_inbox(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let inbox = Inbox::open(self.number)?;
        let descriptor = inbox.as_fd().as_raw_fd();
        registry.register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
        self.inbox = Some(inbox);
        self.ready = true;
        Ok(())
    }

    /// Returns whether connections can reach this network process.
    pub fn takes_clients(&self) -> bool {
        self.is_first() || self.inbox.is_some()
    }

    /// Returns the network processes that accept a client now, in ascending order of their numbers of clients.
    pub fn by_load(&self, registry: &ClientRegistry) -> Vec<usize> {
        let all = 0..if self.outbox.is_some() { self.all } else { 1 };
        let mut open: Vec<(u64, usize)> = all
            .filter_map(|number| Some((registry.load(number)?, number)))
            .collect();
        open.sort_unstable();
        open.into_iter().map(|(_, number)| number).collect()
    }

    /// Passes a connection to another network process, for which a place in the client registry was claimed.
    pub fn hand(&self, number: usize, place: u64, socket: &Socket) -> io::Result<()> {
        match &self.outbox {
            Some(outbox) => outbox.send(number, place, socket.as_fd()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns the next connection from the first network process, and its place in the client registry. Returns None
    /// if no connection waits.
    pub fn take(&mut self, registry: &ClientRegistry) -> Option<(Socket, Claimed)> {
        loop {
            let handed = match self.inbox.as_ref()?.take() {
                Ok(Some(handed)) => handed,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(None) | Err(_) => {
                    self.ready = false;
                    return None;
                }
            };
            let Some(claimed) = registry.take_over(self.number, handed.number) else {
                continue;
            };
            match handed.socket {
                Some(socket) => return Some((Socket::from(socket), claimed)),
                // The kernel closed the connection, because this process had no descriptor for it.
                None => registry.give_back(&claimed),
            }
        }
    }
}
