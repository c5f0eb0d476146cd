//! Counts the memory that clients take, and limits the memory of all clients of the server together
//! (`pgcache.resp_max_clients_memory`). If they exceed the limit, the client that takes most memory is disconnected
//! first.
//!
//! Each network process counts a client after each of its turns, and whenever a message for it is kept. It publishes
//! the sum and the size of its largest client to the other network processes, so that the process with the largest
//! client of the server disconnects that client.

use std::time::{Duration, Instant};

use pgrx::PgSqlErrorCode;

use crate::guc::resp as settings;
use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::session::failure;
use crate::pg::session::fault::{self, Fault};
use crate::resp::session::clients::Clients;
use crate::resp::session::connection::Connection;

/// The minimum time between two lines in the log.
const BETWEEN_LINES: Duration = Duration::from_secs(1);

/// The memory of a network process's clients.
pub struct Memory {
    number: usize,
    registry: ClientRegistry,
    /// Whether the server has other network processes.
    others: bool,
    /// The number of bytes that all clients of the server may take; None means no limit.
    most: Option<usize>,
    /// The number of bytes that the clients of this network process take.
    own: usize,
    largest: usize,
    /// The number of clients that were disconnected.
    pub evicted: u64,
    /// The time of the last line in the log.
    said: Option<Instant>,
    /// The number of clients that were disconnected after that line, without a line of their own.
    unsaid: u64,
}

impl Memory {
    pub fn new(number: usize, registry: ClientRegistry, others: bool, evicted: u64) -> Memory {
        Memory {
            number,
            registry,
            others,
            most: settings::max_clients_memory(),
            own: 0,
            largest: 0,
            evicted,
            said: None,
            unsaid: 0,
        }
    }

    /// Reads the setting again.
    pub fn read_setting(&mut self) {
        self.most = settings::max_clients_memory();
    }

    /// Counts the memory that a client takes now.
    #[inline]
    pub fn count(&mut self, client: &mut Connection) {
        let now = client.memory();
        let before = std::mem::replace(&mut client.counted, now);
        if before != now {
            self.own = (self.own + now).saturating_sub(before);
            self.largest = self.largest.max(now);
            self.registry
                .set_memory(self.number, self.own, self.largest);
        }
    }

    /// Subtracts the memory of a client that has ended.
    pub fn forget(&mut self, client: &Connection) {
        self.own = self.own.saturating_sub(client.counted);
        self.registry
            .set_memory(self.number, self.own, self.largest);
    }

    /// Counts all clients anew, after a client was lost in the middle of its turn.
    pub fn count_anew(&mut self, clients: &Clients) {
        self.own = clients.iter().map(|client| client.counted).sum();
        self.registry
            .set_memory(self.number, self.own, self.largest);
    }

    /// Returns the number of bytes by which the clients exceed the limit.
    #[inline]
    fn excess(&self) -> usize {
        let Some(most) = self.most else {
            return 0;
        };
        let all = match self.others {
            true => self.registry.clients_memory(),
            false => self.own,
        };
        all.saturating_sub(most)
    }

    /// Frees the buffers of the largest clients while all clients together exceed the limit. Returns the indexes of
    /// these clients, which the caller disconnects.
    #[inline]
    pub fn bound(&mut self, clients: &mut Clients) -> Vec<usize> {
        match self.excess() {
            0 => Vec::new(),
            _ if fault::on(Fault::ClientsMemoryUnbounded) => Vec::new(),
            _ => self.evict(clients),
        }
    }

    #[cold]
    fn evict(&mut self, clients: &mut Clients) -> Vec<usize> {
        let may_go = |client: &Connection| !client.killed && !client.session.is_exempt();
        let sizes = clients.iter_mut().filter(|(_, client)| may_go(client));
        let mut largest: Vec<_> = sizes
            .map(|(place, client)| (client.counted, place))
            .collect();
        largest.sort_unstable();
        self.largest = largest.last().map_or(0, |(size, _)| *size);
        self.registry
            .set_memory(self.number, self.own, self.largest);
        let mut ended = Vec::new();
        while self.excess() > 0
            && let Some((size, place)) = largest.pop()
        {
            if let Some(network) = self.registry.network_with_larger_client(self.number, size) {
                self.registry.wake_network(network);
                break;
            }
            if let Some(client) = clients.get_mut(place) {
                self.say(size, client);
                client.killed = true;
                client.drop_buffers();
                self.count(client);
                self.evicted += 1;
                ended.push(place);
            }
            self.largest = largest.last().map_or(0, |(size, _)| *size);
            self.registry
                .set_memory(self.number, self.own, self.largest);
        }
        ended
    }

    fn say(&mut self, size: usize, client: &Connection) {
        if self.said.is_some_and(|said| said.elapsed() < BETWEEN_LINES) {
            self.unsaid += 1;
            return;
        }
        self.said = Some(Instant::now());
        let unsaid = match std::mem::take(&mut self.unsaid) {
            0 => String::new(),
            more => format!(" {more} more were disconnected since the last such message."),
        };
        let kilobytes = |bytes: usize| bytes.div_ceil(1024);
        failure::warn(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES,
            format!(
                "disconnected client {} of the Redis protocol because clients use too much memory",
                client.session.id
            ),
            format!(
                "It used {} kB, the most of all. All clients together may use {} kB.{unsaid}",
                kilobytes(size),
                kilobytes(self.most.unwrap_or(0)),
            ),
            "Clients that do not read their replies and long transactions take memory. If all of it is needed, raise pgcache.resp_max_clients_memory.",
        );
    }
}
