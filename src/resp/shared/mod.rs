//! The state of a network process that all its clients share: the clients themselves, cached answers from the catalogs,
//! the queues to executors, limits and counters. It neither reads sockets nor runs commands. [`Core::wake`] resumes a
//! waiting client only for the reason for which it waits; otherwise a late answer could resume a client whose command
//! an executor still runs.

pub mod client_list;
pub mod client_permissions;
mod client_roles;
mod process_counters;
mod published;
pub mod rate;
pub mod tracking;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use pgcache_resp::{Protocol, Writer};
use socket2::Socket;

use crate::guc::resp as settings;
use crate::pg::resp::client_registry::{Claimed, ClientRegistry, Counter, Now};
use crate::pg::resp::messages::{Message, Messages, Reader};
use crate::pg::resp::multi_process::{self, MultiProcess};
use crate::pg::resp::work_queue::{Answered, Done};
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::resp::commands::channels::Hub;
use crate::resp::commands::remote_subscribers;
use crate::resp::ipc::Catalog;
use crate::resp::ipc::catalog_request::{CacheName, CatalogResponse, RoleName, WorkQueue};
use crate::resp::ipc::pending_batch::WorkSubmitter;
use crate::resp::ipc::permission_cache::is_locked;
use crate::resp::net::tls::{Pace, Tls};
use crate::resp::session::Waits;
use crate::resp::session::clients::Clients;
use crate::resp::session::connection::Connection;
use crate::resp::session::memory_limit::Memory;
use crate::resp::session::pauses::Pauses;
use crate::resp::session::read_batch::ReadBatch;
use crate::resp::shared::process_counters::Counters;
use crate::resp::shared::rate::Rate;
use crate::resp::tracking::tracking_clients::Tracking;

/// The delay before a permission is requested again if another session has locked the cache.
const LOCKED: Duration = Duration::from_millis(20);

/// The settings as they were last read.
pub struct Limits {
    pub request: usize,
    pub output: usize,
    pub clients: usize,
    pub idle: Option<Duration>,
    pub authentication: Option<Duration>,
    pub cleartext: bool,
    /// The minimum duration of a command that SLOWLOG records; None if it records no command.
    pub slow: Option<Duration>,
    /// The role of clients that do not authenticate; None if they have no role.
    pub default_role: Option<RoleName>,
}

impl Limits {
    fn read() -> Limits {
        Limits {
            request: settings::max_request(),
            output: settings::max_output(),
            clients: settings::max_clients(),
            idle: settings::idle_timeout(),
            authentication: settings::authentication_timeout(),
            cleartext: settings::cleartext(),
            slow: settings::slower_than(),
            default_role: RoleName::new(settings::default_role().as_bytes())
                .filter(|role| !role.as_bytes().is_empty()),
        }
    }
}

/// The state that a network process's clients share.
pub struct Core {
    pub number: usize,
    pub registry: ClientRegistry,
    /// The state shared with the other network processes; None if this is the only network process.
    pub peers: Option<MultiProcess>,
    pub clients: Clients,
    pub catalog: Catalog,
    pub pauses: Pauses,
    pub limits: Limits,
    pub tls: Tls,
    pub handshakes: Pace,
    pub memory: Memory,
    pub counters: Counters,
    pub tracking: Tracking,
    /// Commands per second.
    pub rate: Rate,
    pub began: Instant,
    pub began_at: Timestamp,
    /// The indexes of the clients to serve.
    pub ready: VecDeque<usize>,
    /// The clients that are delayed. Each element is the end of the delay, the client's id, and the reason for which
    /// the client waits.
    held: Vec<(Instant, u64, Waits)>,
    /// The network process's side of the work queue.
    pub submitter: WorkSubmitter,
    /// The clients that found no room in the queue to the executors.
    starved: Vec<u64>,
    /// The number of clients of each role.
    roles: HashMap<u32, usize>,
    /// The input that was read and is not yet served.
    pub read_batch: ReadBatch,
    /// The time that a client's commands use. The clock is read once for all commands that the client has sent.
    pub now: Timestamp,
    /// Places in the client registry that were freed.
    freed: Vec<Claimed>,
    /// The reader of messages that sessions publish.
    published: Option<Reader>,
    /// A published message that only some subscribers have received, and the last pattern that was compared with its
    /// channel.
    partly_published: Option<(Message, Box<[u8]>)>,
    replies: Option<Writer>,
}

impl Core {
    pub fn new(number: usize, registry: ClientRegistry, work_queue: WorkQueue) -> Core {
        let peers = multi_process::begin(number, settings::workers());
        remote_subscribers::begin(number, registry, peers);
        let former = registry.begin_network(number);
        let evicted = former[Counter::Evicted as usize];
        let mut core = Core {
            number,
            registry,
            peers,
            clients: Clients::default(),
            catalog: Catalog::new(number),
            pauses: Pauses::default(),
            limits: Limits::read(),
            tls: Tls::new(),
            handshakes: Pace::new(),
            memory: Memory::new(number, registry, peers.is_some(), evicted),
            counters: Counters::going_on_from(&former),
            tracking: Tracking::new(number),
            rate: Rate::default(),
            began: Instant::now(),
            began_at: clock::now(),
            ready: VecDeque::new(),
            held: Vec::new(),
            starved: Vec::new(),
            submitter: WorkSubmitter::new(work_queue, number),
            roles: HashMap::new(),
            read_batch: ReadBatch::default(),
            now: clock::now(),
            freed: Vec::new(),
            published: Messages::of_server().map(|messages| messages.reader(number)),
            partly_published: None,
            replies: None,
        };
        core.read_settings();
        core
    }

    /// Reads the settings.
    pub fn read_settings(&mut self) {
        self.limits = Limits::read();
        self.memory.read_setting();
        self.tracking.read_settings();
        let names = settings::caches();
        let names = names.iter().map(|name| {
            // No cache has a name that is too long.
            CacheName::new(name.as_bytes()).or_else(|| CacheName::new(b""))
        });
        self.catalog
            .permissions
            .set_names(names.flatten().collect());
        if self.catalog.permissions.take_moved() {
            self.owe_all();
        }
    }

    /// Claims a place in the client registry for the next client of the network process with index `network`; returns
    /// None if the registry is full.
    pub fn claim_for(&mut self, network: usize) -> Option<Claimed> {
        self.registry.claim(network, &mut self.freed)
    }

    /// Replies to a connection that there are too many clients. The caller then closes it. Any part of the reply that
    /// the socket does not take is lost.
    pub fn turn_away(&mut self, socket: &Socket) {
        self.counters.rejected += 1;
        let _ = socket.send(b"-ERR max number of clients reached\r\n");
    }

    /// Publishes the counters in the client registry.
    pub fn show_figures(&mut self) {
        let moment = Instant::now();
        let is_due = self.rate.is_due(moment);
        if is_due {
            self.counters.read_cpu();
        }
        let counters = self.counters.for_registry(self.memory.evicted);
        let now = Now {
            clients: self.clients.len() as u64,
            tracking: self.tracking.clients() as u64,
            tracked_keys: self.tracking.keys() as u64,
            blocked: self.pauses.holds() as u64,
            largest_batch: std::mem::take(&mut self.counters.largest_batch),
        };
        self.registry.set_figures(self.number, &counters, &now);
        if is_due {
            let commands = self.registry.counters()[Counter::Commands as usize];
            self.rate.add(moment, commands);
        }
    }

    /// Reads the state of CLIENT PAUSE from the client registry, and resumes clients that it no longer holds. Returns
    /// the end of the pause.
    pub fn look_at_pause(&mut self) -> Option<Instant> {
        let (goes_on, ends) = self.pauses.look(&self.registry);
        goes_on
            .into_iter()
            .for_each(|id| self.wake(id, Waits::Pause));
        ends
    }

    /// Counts the memory that a client takes now.
    #[inline]
    pub fn count_memory(&mut self, client: &mut Connection) {
        self.memory.count(client);
    }

    /// Disconnects the largest clients while all clients together exceed the memory limit.
    #[inline]
    pub fn bound_memory(&mut self) {
        for place in self.memory.bound(&mut self.clients) {
            self.enqueue(place);
        }
    }

    /// Disconnects the clients that another process wants to disconnect (CLIENT KILL).
    pub fn end_requested(&mut self) {
        if !self.registry.has_ends(self.number) {
            return;
        }
        let mut places = Vec::new();
        for (place, client) in self.clients.iter_mut() {
            let session = &client.session;
            let claimed = session.place.as_ref();
            if claimed.is_some_and(|claimed| self.registry.is_to_end(claimed, session.id)) {
                client.killed = true;
                places.push(place);
            }
        }
        self.counters.killed += places.len() as u64;
        places.into_iter().for_each(|place| self.enqueue(place));
    }

    /// Returns a writer for a client's replies.
    pub fn take_replies(&mut self, protocol: Protocol, limit: usize) -> Writer {
        match self.replies.take() {
            Some(mut replies) => {
                replies.restart(protocol, limit);
                replies
            }
            None => Writer::new(protocol, limit),
        }
    }

    pub fn give_replies(&mut self, replies: Writer) {
        self.replies = Some(replies);
    }

    /// Reads the input of the next clients to serve, at most `most`. Returns the number of clients taken from the list.
    pub fn read_ahead(&mut self, most: usize) -> usize {
        let requests = pgcache_resp::Limits::new(self.limits.request);
        self.read_batch
            .read(&mut self.clients, &mut self.ready, most, &requests)
    }

    /// Puts the client at this index on the list of clients to serve, unless it is already on the list.
    pub fn enqueue(&mut self, place: usize) {
        if let Some(client) = self.clients.get_mut(place)
            && !client.queued
        {
            client.queued = true;
            self.ready.push_back(place);
        }
    }

    /// Records a client that found no room in the queue. The client tries again when the queue may have room.
    pub fn starve(&mut self, id: u64) {
        self.counters.queue_full += 1;
        self.starved.push(id);
    }

    /// Returns whether a client waits for room in the queue.
    pub fn has_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Puts all clients that found no room on the list of clients to serve.
    pub fn feed_starved(&mut self) {
        for id in std::mem::take(&mut self.starved) {
            if let Some(place) = self.clients.place_of(id) {
                self.enqueue(place);
            }
        }
    }

    /// Puts at most `most` of the clients that found no room on the list of clients to serve.
    pub fn feed_some_starved(&mut self, most: usize) {
        let most = most.min(self.starved.len());
        for id in self.starved.drain(..most).collect::<Vec<_>>() {
            if let Some(place) = self.clients.place_of(id) {
                self.enqueue(place);
            }
        }
    }

    /// Takes the answers of executors, and wakes their clients.
    pub fn take_answers(&mut self) {
        let work_queue = self.submitter.work_queue;
        let mut replies = 0;
        while let Some(done) = work_queue.take_answer(self.number) {
            match done {
                Done::Batch(answered) => {
                    replies += 1;
                    self.reply_arrived(answered);
                }
                Done::Request(ticket, answer) => self.request_answered(&work_queue, ticket, answer),
            }
        }
        self.feed_some_starved(replies);
        if self.catalog.permissions.take_moved() {
            self.owe_all();
        }
    }

    fn reply_arrived(&mut self, answered: Answered) {
        let id = self.submitter.work_queue.batches.ticket(&answered);
        let place = id.and_then(|id| self.clients.place_of(id));
        match (id, place.and_then(|place| self.clients.get_mut(place))) {
            (Some(id), Some(client)) if client.session.waits == Waits::Table => {
                client.session.offloaded.handed = None;
                client.session.offloaded.answered = Some(answered);
                self.wake(id, Waits::Table);
            }
            _ => self.submitter.give_back(answered),
        }
    }

    fn request_answered(&mut self, queue: &WorkQueue, ticket: u64, answer: CatalogResponse) {
        self.counters.questions += 1;
        match self.catalog.answered(queue, ticket, &answer) {
            Some(waiting) => {
                let locked = is_locked(&answer);
                waiting
                    .into_iter()
                    .for_each(|id| self.permission(id, locked));
            }
            None => self.authenticated(ticket, answer),
        }
        self.feed_starved();
    }

    /// Frees the place of a reply whose client was lost in the middle of its turn.
    pub fn reclaim_places(&mut self) {
        if fault::on(Fault::LostClientKeepsPlace) {
            return;
        }
        let kept = |client: &Connection| Some(client.session.offloaded.answered.as_ref()?.number());
        let kept: Vec<u32> = self.clients.iter().filter_map(kept).collect();
        self.submitter.reclaim(self.number, &kept);
    }

    /// Resumes a client if it waits for this reason. It may wait for another reason: the answer to a request within an
    /// EXEC may arrive while an executor already runs a later command of the client, and this answer must not resume
    /// the client.
    pub fn wake(&mut self, id: u64, awaited: Waits) {
        if let Some(place) = self.clients.place_of(id)
            && let Some(client) = self.clients.get_mut(place)
            && client.session.waits == awaited
        {
            client.session.waits = Waits::Nothing;
            self.enqueue(place);
        }
    }

    /// Resumes a client if it waits for a permission. If the cache is locked, the client requests the permission again
    /// after a delay.
    fn permission(&mut self, id: u64, locked: bool) {
        let place = self.clients.place_of(id);
        let client = place.and_then(|place| self.clients.get_mut(place));
        if client.is_some_and(|client| client.session.waits == Waits::Permission) {
            match locked {
                true => self
                    .held
                    .push((Instant::now() + LOCKED, id, Waits::Permission)),
                false => self.wake(id, Waits::Permission),
            }
        }
    }

    /// Ends the connection of the client that was taken out, if it is given; otherwise of the client at this index.
    pub fn end(&mut self, place: usize, client: Option<Box<Connection>>) {
        if let Some(mut client) = client.or_else(|| self.clients.take(place)) {
            client.end();
            let session = &mut client.session;
            if let Some(place) = session.offloaded.handed.take() {
                self.submitter.work_queue.places.leave(place);
            }
            if let Some(answered) = session.offloaded.answered.take() {
                self.submitter.give_back(answered);
            }
            if client.session.waits == Waits::Pause {
                self.pauses.forget(client.session.id);
            }
            self.log_out(&mut client.session);
            self.memory.forget(&client);
            self.redirect_lost(client.session.id);
            let session = &client.session;
            self.tracking.end(session.id, session.tracking.as_deref());
            self.unshow(client.session.place.take());
            self.clients.remove(place, client.session.id);
        }
    }

    /// Notifies the target of an ended client's REDIRECT, if the client had a target, that everything has changed.
    pub fn redirect_lost(&mut self, id: u64) {
        let most = self.limits.output;
        let target = self.tracking.redirect_lost(id, &mut self.clients, most);
        target.into_iter().for_each(|place| self.enqueue(place));
    }

    /// Marks all clients that track keys, so that they are notified that everything has changed. Called when a Redis
    /// database refers to another cache, because no client knows which of its keys it read in the former cache.
    fn owe_all(&mut self) {
        let owed = self.tracking.owe_all(&mut self.clients);
        owed.into_iter().for_each(|place| self.enqueue(place));
    }

    /// Removes a client that has ended from the client registry.
    pub fn unshow(&mut self, place: Option<Claimed>) {
        if let Some(place) = place {
            self.registry.give_back(&place);
            // With several network processes, the first process claims the places of all clients.
            if self.number == 0 {
                self.freed.push(place);
            }
        }
    }

    /// Removes from the client registry a client that was lost in the middle of its turn, and so is no longer among the
    /// clients.
    pub fn unshow_lost(&mut self, id: u64) {
        if let Some(place) = self.registry.place_of(self.number, id) {
            self.unshow(Some(place));
        }
    }

    /// Resumes the clients whose delay is over. Returns the time at which the next delay ends.
    pub fn release_held(&mut self, now: Instant) -> Option<Instant> {
        let held = std::mem::take(&mut self.held).into_iter();
        let (due, held): (Vec<_>, Vec<_>) = held.partition(|(until, ..)| *until <= now);
        self.held = held;
        for (_, id, awaited) in due {
            self.wake(id, awaited);
        }
        self.held.iter().map(|(until, ..)| *until).min()
    }
}

impl Hub for Core {
    fn send(&mut self, client: u64, write: &dyn Fn(&mut Writer)) {
        let limit = self.limits.output;
        let Some(place) = self.clients.place_of(client) else {
            return;
        };
        let Some(reader) = self.clients.get_mut(place) else {
            return;
        };
        let room = limit.saturating_sub(reader.unsent());
        let mut message = Writer::new(reader.session.protocol, room);
        write(&mut message);
        let sent = !message.overflowed() && reader.push(message.as_bytes());
        self.counters.cut_off += u64::from(!sent && !reader.killed);
        reader.killed |= !sent;
        self.memory.count(reader);
        if !sent {
            self.enqueue(place);
        }
        self.bound_memory();
    }
}
