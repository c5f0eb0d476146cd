//! The event loop of a network process. Each network process owns the connections of its clients, answers each request
//! that needs no wait, and offloads all other requests to executors. The first network process also owns the listeners.
//!
//! One iteration (a turn) sleeps if there is no work, takes answers and new connections, and then serves the clients
//! that have sent input, in rounds of a few clients. A round reads the input, begins a transaction, which accepts
//! invalidation messages and reads no table, and serves each client within bounds.

use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use pgrx::PgSqlErrorCode;

use crate::cache::lease::undo_marks;
use crate::guc;
use crate::pg::resp::client_registry::ClientRegistry;
use crate::pg::resp::process::Kind;
use crate::pg::resp::sleep::{self, Sleeper};
use crate::pg::session::failure;
use crate::pg::worker::{background, connect};
use crate::resp::dispatch::offload;
use crate::resp::ipc::catalog_request::WorkQueue;
use crate::resp::network::accept::{self, Acceptor};
use crate::resp::network::serve;
use crate::resp::session::Waits;
use crate::resp::session::progress::Progress;
use crate::resp::session::read_batch::Read;
use crate::resp::shared::Core;
use crate::resp::shared::tracking;

/// The maximum number of events that one wait returns.
const EVENTS: usize = 1024;
/// The time after which a transaction serves no further client.
const LONGEST_ROUND: Duration = Duration::from_millis(2);
/// The interval at which silent and waiting clients are checked.
const LOOK: Duration = Duration::from_secs(1);
/// The maximum sleep while clients wait for room in the queue.
const FEED_AGAIN: Duration = Duration::from_millis(100);
/// The maximum time that a client may wait for an executor's answer about a permission, AUTH or the default role, or
/// may leave its last replies unread. The wait for a table has no such limit.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The token of signals and wake-ups in the epoll set. A client's token is its index in `Core::clients`; `accept`
/// defines the other tokens.
const SIGNALS: usize = accept::INBOX - 1;

struct NetworkProcess {
    core: Core,
    poll: Poll,
    events: Events,
    sleeper: Sleeper,
    acceptor: Acceptor,
    next_look: Instant,
}

/// Runs a network process until its end is requested.
pub fn run(number: usize) {
    let Some(work_queue) = WorkQueue::of_server() else {
        background::end(0);
    };
    let Some(registry) = ClientRegistry::of_server() else {
        background::end(0);
    };
    if !work_queue.claim(Kind::Network, number) {
        background::end(0);
    }
    connect::as_server(work_queue.processes.database(), c"pgcache resp network");
    let core = Core::new(number, registry, work_queue);
    match NetworkProcess::new(core) {
        Ok(mut network) => {
            while !background::is_end_requested() {
                network.turn();
            }
            network.core.registry.end_network(number);
            drop(network);
        }
        Err(error) => failure::warn(
            PgSqlErrorCode::ERRCODE_SYSTEM_ERROR,
            "could not initialize a process of the Redis protocol".into(),
            error.to_string(),
            "The start is tried again.",
        ),
    }
    background::end(0);
}

impl NetworkProcess {
    fn new(mut core: Core) -> io::Result<NetworkProcess> {
        let poll = Poll::new()?;
        let registry = Rc::new(poll.registry().try_clone()?);
        let sleeper = Sleeper::new()?;
        for descriptor in sleeper.watched() {
            let descriptor = descriptor.as_raw_fd();
            registry.register(
                &mut SourceFd(&descriptor),
                Token(SIGNALS),
                Interest::READABLE,
            )?;
        }
        Ok(NetworkProcess {
            acceptor: Acceptor::new(&mut core, registry),
            core,
            poll,
            events: Events::with_capacity(EVENTS),
            sleeper,
            next_look: Instant::now(),
        })
    }

    fn turn(&mut self) {
        let pause_ends = self.core.look_at_pause();
        let pause = match self.has_work() {
            true => Some(Duration::ZERO),
            false => self.pause(pause_ends),
        };
        self.look(pause);
        if sleep::was_woken() {
            self.obey();
        }
        self.core.take_answers();
        self.core.end_requested();
        self.core.take_published();
        self.core.look_at_pause();
        self.core.bound_memory();
        let now = Instant::now();
        self.core.release_held(now);
        if now >= self.next_look {
            self.next_look = now + LOOK;
            background::end_with_postmaster();
            self.core.feed_starved();
            self.end_silent(now);
        }
        if self.acceptor.open(&mut self.core, now) && !guc::enabled() {
            self.next_look = Instant::now();
        }
        self.acceptor.accept(&mut self.core, now);
        self.serve();
        offload::wake_executors(&mut self.core);
        self.core.show_figures();
    }

    fn has_work(&self) -> bool {
        !self.core.ready.is_empty()
            || self.core.read_batch.waits()
            || self.core.has_published()
            || self
                .core
                .submitter
                .work_queue
                .places
                .is_answered(self.core.number)
            || self.core.tracking.has_news()
            || self.acceptor.has_work()
    }

    /// Waits for events, for no longer than `pause` if it is given, and notes them.
    fn look(&mut self, pause: Option<Duration>) {
        let came = match pause {
            Some(Duration::ZERO) => self.poll.poll(&mut self.events, pause),
            _ => self.sleep(pause),
        };
        if let Err(error) = came
            && error.kind() != io::ErrorKind::Interrupted
        {
            return failure::warn(
                PgSqlErrorCode::ERRCODE_SYSTEM_ERROR,
                "could not poll the connections of the Redis protocol".into(),
                error.to_string(),
                "The process tries again.",
            );
        }
        for event in &self.events {
            let Token(token) = event.token();
            if token == SIGNALS {
                self.sleeper.let_in();
                continue;
            }
            if self.acceptor.note(token) {
                continue;
            }
            if let Some(client) = self.core.clients.get_mut(token) {
                client.note(event);
            }
            self.core.enqueue(token);
        }
    }

    fn sleep(&mut self, pause: Option<Duration>) -> io::Result<()> {
        let pause = self.core.tracking.before_sleep(pause);
        let came = self.sleeper.asleep(|may_sleep| {
            let pause = if may_sleep {
                pause
            } else {
                Some(Duration::ZERO)
            };
            self.poll.poll(&mut self.events, pause)
        });
        self.core.tracking.after_sleep();
        came
    }

    /// Returns how long the process may sleep before work is due. Returns None if it may sleep until an event arrives.
    fn pause(&mut self, pause_ends: Option<Instant>) -> Option<Duration> {
        let now = Instant::now();
        let looks = (self.core.clients.len() > 0).then_some(self.next_look);
        let held = self.core.release_held(now);
        let starved = self.core.has_starved().then(|| now + FEED_AGAIN);
        let lane = self.core.submitter.next_look();
        let [opens, inbox, accepts] = self.acceptor.next_moments();
        [
            lane, looks, opens, inbox, held, starved, accepts, pause_ends,
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|moment| moment.saturating_duration_since(now))
    }

    /// Does the work that signals request.
    fn obey(&mut self) {
        if let Err(error) = background::obey_interrupts() {
            error.warn(
                "a process of the Redis protocol was interrupted".into(),
                "The process continues.",
            );
        }
        if background::reload_if_requested() {
            self.core.read_settings();
            self.core.tls.reload();
            self.acceptor.count_descriptors(&mut self.core);
        }
        // Invalidation messages are read even if no client needs them, because the queue of messages keeps each until
        // the slowest process has read it.
        self.take_messages();
    }

    fn take_messages(&self) {
        if let Err(error) = background::in_turn(|| ()) {
            error.warn(
                "a process of the Redis protocol could not process invalidation messages".into(),
                "The process continues.",
            );
        }
    }

    /// Serves each ready client once, in short transactions.
    fn serve(&mut self) {
        self.notify_trackers();
        let mut left = self.core.ready.len();
        while left > 0 || self.core.read_batch.waits() {
            left -= self.core.read_ahead(left);
            let core = &mut self.core;
            let serving = Cell::new(None);
            let done = background::in_turn(|| {
                let mut now = Instant::now();
                let until = now + LONGEST_ROUND;
                while now < until
                    && let Some((place, id, read)) = core.read_batch.take()
                {
                    serving.set(Some((place, id)));
                    serve_one(core, place, read, now);
                    serving.set(None);
                    now = Instant::now();
                }
            });
            if let Err(error) = done {
                // The error has dropped the client, whose connection could not be used any more, because the end of its
                // request is unknown. Its entries in other structures are removed here.
                if let Some((place, id)) = serving.get() {
                    self.core.clients.remove(place, id);
                    self.core.redirect_lost(id);
                    self.core.tracking.end(id, None);
                    self.core.unshow_lost(id);
                    self.core.reclaim_places();
                    self.core.count_roles();
                }
                self.core.counters.cut_off += 1;
                error.warn(
                    "a command of the Redis protocol failed, and its client was disconnected"
                        .into(),
                    "Other clients are not affected.",
                );
                // The remaining clients are served in the next turn, after signals have been handled.
                return;
            }
        }
    }

    /// Notifies tracking clients of changes.
    fn notify_trackers(&mut self) {
        if !self.core.tracking.has_news() {
            return;
        }
        let core = &mut self.core;
        if let Err(error) = background::in_turn(|| tracking::drain(core, None)) {
            error.warn(
                "a process of the Redis protocol could not notify clients of changes".into(),
                "The process continues.",
            );
        }
    }

    /// Disconnects clients that have been silent for too long, and those that have waited for too long.
    fn end_silent(&mut self, now: Instant) {
        // An empty transaction accepts invalidation messages, which may void permissions although no client sends
        // anything. On a standby, replication commits prepared transactions without notifying any process, so their
        // marks are undone here.
        let tracks = self.core.tracking.is_on();
        if let Err(error) = background::in_turn(|| {
            if tracks {
                undo_marks::lower_decided();
            }
        }) {
            error.warn(
                "a process of the Redis protocol could not check prepared transactions".into(),
                "The process continues.",
            );
        }
        self.core.end_locked_out();
        let limits = &self.core.limits;
        let mut ended = Vec::new();
        let mut unsettled = Vec::new();
        for (place, client) in self.core.clients.iter_mut() {
            let session = &client.session;
            let since = |moment: Instant| now.saturating_duration_since(moment);
            // During a pause the server itself holds back the AUTH of a client.
            let stranger = session.login.role.is_none()
                && session.waits != Waits::Pause
                && limits
                    .authentication
                    .is_some_and(|longest| since(session.login.unknown_since) > longest);
            let waits = !matches!(session.waits, Waits::Nothing | Waits::Pause | Waits::Table)
                && since(session.waits_since()) > LONGEST_WAIT;
            // As in Redis, a subscriber has no time limit, because it has nothing to send. A client that reads its
            // replies slowly is not silent.
            let silent = !matches!(session.waits, Waits::Pause | Waits::Table)
                && !session.state.is_subscribed()
                && limits
                    .idle
                    .is_some_and(|longest| since(client.last_active()) > longest);
            let leaves = client.closing && since(client.last_active()) > LONGEST_WAIT;
            let is_off = !guc::enabled();
            let mute = is_off && client.is_shaking();
            if stranger || waits || silent || leaves || mute {
                ended.push(place);
            } else if is_off || tracking::is_unsettled(session) {
                unsettled.push(place);
            }
        }
        unsettled
            .into_iter()
            .for_each(|place| self.core.enqueue(place));
        for place in ended {
            self.core.end(place, None);
        }
    }
}

fn serve_one(core: &mut Core, place: usize, mut read: Read, now: Instant) {
    // The client may have ended since its input was read.
    let Some(mut client) = core.clients.take_if(place, read.id()) else {
        core.read_batch.give_back(read);
        return;
    };
    client.queued = false;
    let id = client.session.id;
    let after = serve::serve(core, &mut client, &mut read, now);
    core.read_batch.give_back(read);
    core.show(&mut client);
    core.count_memory(&mut client);
    match after {
        Progress::Done | Progress::Wait | Progress::Offload(_) => {
            core.clients.put_back(place, client)
        }
        Progress::More => {
            core.clients.put_back(place, client);
            core.enqueue(place);
        }
        Progress::Starve => {
            core.clients.put_back(place, client);
            core.starve(id);
        }
        Progress::Close => core.end(place, Some(client)),
    }
    core.bound_memory();
}
