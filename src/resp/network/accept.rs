//! Accepts connections in a network process. The first process accepts them on its listeners and chooses the process
//! that serves each; every other process takes its connections from its inbox. The serving process adds a client for
//! the connection. Nothing is read from a connection here.

use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use pgrx::PgSqlErrorCode;
use socket2::Socket;

use crate::pg::resp::client_registry::Claimed;
use crate::pg::resp::system;
use crate::pg::session::failure;
use crate::resp::auth::PeerAddress;
use crate::resp::net::registration::Registration;
use crate::resp::network::balance::Balancer;
use crate::resp::network::listen::{self, Arrived, Endpoint, Listener};
use crate::resp::session::Session;
use crate::resp::session::connection::{Connection, Wire};
use crate::resp::shared::Core;

/// The maximum number of connections that are accepted in one turn from each listener or from the inbox, so that
/// connected clients are served in between.
const ACCEPTED: usize = 64;
/// The pause before the next attempt to listen after a failure.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);
/// The pause before the next connection is accepted after descriptors or memory have run out.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// The number of descriptors of the process that belong to no client.
const OWN_DESCRIPTORS: usize = 64;

/// The token of the first listener in the epoll set; further listeners have the next numbers.
const LISTENERS: usize = usize::MAX / 2;
/// The token of the inbox.
pub const INBOX: usize = LISTENERS - 1;

/// The connections that arrive at a network process.
pub struct Acceptor {
    /// A handle of the epoll set, with which connections change the events that they watch.
    registry: Rc<Registry>,
    networks: Balancer,
    listeners: Vec<Listener>,
    /// Endpoints that are not open yet, each with the last error that was logged for it.
    unopened: Vec<(Endpoint, Option<io::ErrorKind>)>,
    next_open: Instant,
    next_accept: Option<Instant>,
    /// The number of clients for which the process has descriptors.
    descriptors: usize,
    short_of_descriptors: bool,
    /// Whether the log already says that no connection can be accepted.
    said_full: bool,
}

impl Acceptor {
    pub fn new(core: &mut Core, registry: Rc<Registry>) -> Acceptor {
        let networks = Balancer::new(core.number);
        let endpoints = match networks.is_first() {
            true => listen::endpoints(),
            false => Vec::new(),
        };
        let mut acceptor = Acceptor {
            registry,
            networks,
            listeners: Vec::new(),
            unopened: endpoints
                .into_iter()
                .map(|endpoint| (endpoint, None))
                .collect(),
            next_open: Instant::now(),
            next_accept: None,
            descriptors: usize::MAX,
            short_of_descriptors: false,
            said_full: false,
        };
        acceptor.count_descriptors(core);
        acceptor
    }

    /// Raises the limit of descriptors to one for each possible client, and warns if the system allows fewer.
    pub fn count_descriptors(&mut self, core: &mut Core) {
        let wanted = core.limits.clients.saturating_add(OWN_DESCRIPTORS);
        let descriptors = system::raise_descriptors(wanted);
        self.descriptors = descriptors.saturating_sub(OWN_DESCRIPTORS);
        let short = descriptors < wanted;
        if short && !self.short_of_descriptors {
            failure::warn(
                PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES,
                "the system allows fewer file descriptors than pgcache.resp_max_clients needs"
                    .into(),
                format!(
                    "This process of the Redis protocol can serve {} clients at a time.",
                    self.descriptors
                ),
                "Raise the server's limit of open files (ulimit -n, LimitNOFILE), or lower pgcache.resp_max_clients.",
            );
        }
        self.short_of_descriptors = short;
        if self.networks.takes_clients() {
            core.registry.set_room(core.number, self.descriptors);
        }
    }

    /// Returns whether connections wait to be accepted.
    pub fn has_work(&self) -> bool {
        self.may_accept() || self.networks.ready
    }

    /// Notes that connections wait if this is the token of the inbox or of a listener. Returns false for the token of a
    /// client.
    pub fn note(&mut self, token: usize) -> bool {
        if token == INBOX {
            self.networks.ready = true;
            return true;
        }
        let Some(listener) = token.checked_sub(LISTENERS) else {
            return false;
        };
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.ready = true;
        }
        true
    }

    /// Returns the times of the next attempts to listen, to open the inbox or outbox, and to accept connections.
    pub fn next_moments(&self) -> [Option<Instant>; 3] {
        let opens = (!self.unopened.is_empty()).then_some(self.next_open);
        [opens, self.networks.next_open(), self.next_accept]
    }

    /// Opens what is not open yet, if it is time for the next attempt: listeners, and the inbox or outbox. Returns
    /// whether it tried to open the inbox or outbox.
    pub fn open(&mut self, core: &mut Core, now: Instant) -> bool {
        if !self.unopened.is_empty() && now >= self.next_open {
            self.next_open = now + LISTEN_AGAIN;
            self.listen();
        }
        let is_due = self
            .networks
            .next_open()
            .is_some_and(|moment| now >= moment);
        if is_due {
            self.networks.open(&self.registry, Token(INBOX));
            self.count_descriptors(core);
        }
        is_due
    }

    /// Accepts a bounded number of connections, and takes as many from the first network process.
    pub fn accept(&mut self, core: &mut Core, now: Instant) {
        self.accept_waiting(core, now);
        self.take_handed(core);
    }

    /// Listens on the endpoints that are not open yet. Logs an error once.
    fn listen(&mut self) {
        for (endpoint, said) in std::mem::take(&mut self.unopened) {
            match endpoint.open().and_then(|listener| self.watch(listener)) {
                Ok(()) => {}
                Err(error) => {
                    if said != Some(error.kind()) {
                        failure::warn(
                            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                            format!(
                                "could not listen on {} for the Redis protocol",
                                endpoint.name()
                            ),
                            error.to_string(),
                            "The process tries again every five seconds. Check whether another program uses the address, and check pgcache.resp_port, pgcache.resp_listen_addresses and pgcache.resp_socket.",
                        );
                    }
                    self.unopened.push((endpoint, Some(error.kind())));
                }
            }
        }
    }

    fn watch(&mut self, listener: Listener) -> io::Result<()> {
        let token = Token(LISTENERS + self.listeners.len());
        let descriptor = listener.socket.as_raw_fd();
        self.registry
            .register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
        failure::log(format!(
            "listening on {} for the Redis protocol",
            listener.name
        ));
        self.listeners.push(listener);
        Ok(())
    }

    fn may_accept(&self) -> bool {
        self.next_accept.is_none() && self.is_listener_ready()
    }

    fn is_listener_ready(&self) -> bool {
        self.listeners.iter().any(|listener| listener.ready)
    }

    /// Accepts a bounded number of connections.
    fn accept_waiting(&mut self, core: &mut Core, now: Instant) {
        if self.next_accept.is_some_and(|moment| moment > now) {
            return;
        }
        self.next_accept = None;
        for at in 0..self.listeners.len() {
            for _ in 0..ACCEPTED {
                let accepted = match self.listeners.get_mut(at) {
                    Some(listener) if listener.ready => listener.accept(),
                    _ => break,
                };
                match accepted {
                    Ok(Some(socket)) => self.place(core, socket),
                    Ok(None) => self.said_full &= self.is_listener_ready(),
                    // No descriptor or no memory is left. The connections stay in the queue and are accepted later.
                    Err(error) => {
                        self.say_full(&error);
                        self.next_accept = Some(now + ACCEPT_AGAIN);
                        break;
                    }
                }
            }
        }
    }

    /// Logs that no connection can be accepted, unless this was logged already and connections have been waiting ever
    /// since.
    fn say_full(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.said_full, true) {
            failure::warn(
                PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES,
                "could not accept a connection of the Redis protocol".into(),
                error.to_string(),
                "Connected clients are served, and waiting clients are accepted as soon as possible. Raise the server's limit of open files (ulimit -n, LimitNOFILE), or lower pgcache.resp_max_clients.",
            );
        }
    }

    /// Gives a connection to a network process, or turns it away. The client registry has as many places as the setting
    /// allowed when the server started.
    fn place(&mut self, core: &mut Core, socket: Socket) {
        if core.registry.claimed() < core.limits.clients as u64 {
            for number in self.networks.by_load(&core.registry) {
                let Some(claimed) = core.claim_for(number) else {
                    break;
                };
                if number == core.number {
                    return self.welcome(core, socket, claimed);
                }
                let place = core.registry.number_of(&claimed);
                if self.networks.hand(number, place, &socket).is_ok() {
                    return;
                }
                core.registry.give_back(&claimed);
            }
        }
        core.turn_away(&socket);
    }

    /// Takes a bounded number of connections from the first network process.
    fn take_handed(&mut self, core: &mut Core) {
        for _ in 0..ACCEPTED {
            if !self.networks.ready {
                break;
            }
            if let Some((socket, claimed)) = self.networks.take(&core.registry) {
                self.welcome(core, socket, claimed);
            }
        }
    }

    /// Adds a client for a connection. If the connection has an error, it is dropped without a report, so that other
    /// connections can still be accepted.
    fn welcome(&self, core: &mut Core, socket: Socket, claimed: Claimed) {
        let place = core.clients.next_place();
        let arrived = Arrived::prepare(socket);
        let arrived = arrived.and_then(|arrived| {
            let registration = Registration::begin(&self.registry, Token(place), &arrived.socket)?;
            Ok((arrived, registration))
        });
        let Ok((arrived, registration)) = arrived else {
            return core.unshow(Some(claimed));
        };
        let id = core.registry.new_id();
        core.counters.connections += 1;
        let wire = match arrived.peer.address {
            PeerAddress::Tcp(_) if core.tls.is_possible() => Wire::Unknown,
            _ => Wire::Plain,
        };
        let mut session = Session::new(id, arrived.peer, arrived.address, arrived.local_address);
        session.place = Some(claimed);
        let mut client = Connection::new(arrived.socket, registration, wire, session);
        core.show(&mut client);
        core.count_memory(&mut client);
        core.clients.add(client);
    }
}
