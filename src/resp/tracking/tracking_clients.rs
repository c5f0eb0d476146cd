//! Records which clients of a network process track which keys, and writes the invalidation messages to them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::time::{Duration, Instant};

use pgcache_resp::{Protocol, Writer};

use super::read_keys::{Node, Table};
use crate::guc::resp as settings;
use crate::pg::catalog::privilege::Privileges;
use crate::pg::session::clock::{self, Timestamp};
use crate::pg::session::fault::{self, Fault};
use crate::pg::shmem::ring::Reader;
use crate::pg::shmem::tier;
use crate::resp::commands::channels;
use crate::resp::ipc::permission_cache::Permission;
use crate::resp::session::Session;
use crate::resp::session::clients::Clients;
use crate::resp::session::connection::Connection;
use crate::resp::session::memory_limit::Memory;
use crate::resp::session::tracked::Tracked;

/// The time for which a network process requests no further wake-up after a change has woken it; then the process
/// checks the ring by itself. Without this pause, writers would send a signal for each change.
const QUIET: Duration = Duration::from_millis(1);
/// The number of disconnected clients at which their numbers are removed from the table of keys.
const GONE: usize = 1000;

/// Prefixes, each with the clients that are notified of all keys that begin with it.
pub type Prefixes = BTreeMap<Box<[u8]>, Vec<u64>>;

/// The tracking state of a network process.
#[derive(Default)]
pub struct Tracking {
    number: usize,
    /// The reader of the ring of changes, while clients track.
    pub reader: Option<Reader>,
    clients: HashSet<u64>,
    /// The clients with REDIRECT, each with its target, the client that is notified instead.
    redirects: HashMap<u64, u64>,
    gone: usize,
    /// The slots whose changes are reported to this network process.
    slots: HashSet<u32>,
    pub table: Table,
    /// Keys that were evicted from the table to make room. The clients that have read them must still be notified.
    pub evicted: Vec<Node>,
    /// The clients that are notified of all keys with a prefix.
    pub prefixes: Prefixes,
    pub most: usize,
    woken: Option<Instant>,
}

impl Tracking {
    pub fn new(number: usize) -> Tracking {
        // Removes the bits that a killed predecessor has left on slots.
        if let (Some(tier), Some(reader)) = (tier::tier(), Reader::begin(number)) {
            tier.untrack_all(reader.bit());
        }
        Tracking {
            number,
            most: settings::tracking_keys(),
            ..Tracking::default()
        }
    }

    /// Reads the settings.
    pub fn read_settings(&mut self) {
        self.most = settings::tracking_keys();
    }

    /// Returns whether any client tracks.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.reader.is_some()
    }

    /// Returns the number of clients that track.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of keys that clients have read and that have not changed since.
    pub fn keys(&self) -> usize {
        self.table.len()
    }

    /// Returns whether a client must be notified of a change.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| {
            reader.has_news()
                || !self.evicted.is_empty()
                || self
                    .table
                    .next_deadline()
                    .is_some_and(|deadline| deadline <= clock::now())
        })
    }

    /// Prepares for a sleep of at most `pause`, where None means no limit. Returns how long the process may sleep,
    /// which is zero if changes have arrived.
    pub fn before_sleep(&mut self, pause: Option<Duration>) -> Option<Duration> {
        let Some(reader) = &self.reader else {
            return pause;
        };
        let least =
            |one: Option<Duration>, other| one.map_or(Some(other), |one| Some(one.min(other)));
        let pause = match self.table.next_deadline() {
            Some(deadline) => least(pause, until(deadline)),
            None => pause,
        };
        match self.woken.map(|woken| woken.elapsed()) {
            Some(since) if since < QUIET => least(pause, QUIET - since),
            _ if reader.may_sleep() => pause,
            _ => Some(Duration::ZERO),
        }
    }

    pub fn after_sleep(&mut self) {
        if let Some(reader) = &self.reader {
            reader.note_awake();
            if reader.has_news() {
                self.woken = Some(Instant::now());
            }
        }
    }

    /// Requests that changes of a slot are reported to this network process.
    pub fn follow(&mut self, slot: u32) {
        if let (Some(reader), Some(tier)) = (&self.reader, tier::tier())
            && self.slots.insert(slot)
        {
            tier.track(slot, reader.bit());
        }
    }

    pub fn begin(&mut self, client: u64, redirect: Option<u64>) -> bool {
        if self.reader.is_none() {
            self.reader = Reader::begin(self.number);
        }
        self.clients.insert(client);
        match redirect {
            Some(target) => self.redirects.insert(client, target),
            None => self.redirects.remove(&client),
        };
        self.reader.is_some()
    }

    /// Notifies the REDIRECT target of a disconnected client that everything has changed, because the target receives
    /// no more messages about keys that the client has read. Returns the index of the target.
    pub fn redirect_lost(
        &mut self,
        client: u64,
        clients: &mut Clients,
        most_output: usize,
    ) -> Option<usize> {
        let target = self.redirects.remove(&client)?;
        if fault::on(Fault::LostRedirectNotNotified) {
            return None;
        }
        let place = clients.place_of(target)?;
        let other = clients.get_mut(place)?;
        let room = most_output.saturating_sub(other.unsent());
        let mut out = Writer::new(other.session.protocol, room);
        write_as_target(&other.session, Invalidation::Everything, &mut out);
        if out.overflowed() || !other.keep_push(out.as_bytes()) {
            other.killed = true;
        }
        Some(place)
    }

    /// Marks all clients that track keys, so that they are notified that everything has changed. Returns their indexes.
    pub fn owe_all(&mut self, clients: &mut Clients) -> Vec<usize> {
        let all = self.clients.iter().filter_map(|id| clients.place_of(*id));
        let places: Vec<usize> = all.collect();
        for place in &places {
            if let Some(client) = clients.get_mut(*place)
                && let Some(tracked) = client.session.tracking.as_deref_mut()
            {
                tracked.owed = true;
            }
        }
        places
    }

    /// Ends the tracking of a client that has turned it off or has disconnected. `tracked` is its last state.
    pub fn end(&mut self, client: u64, tracked: Option<&Tracked>) {
        self.redirects.remove(&client);
        if !self.clients.remove(&client) {
            return;
        }
        // Searches only the client's prefixes, because many clients may disconnect at once.
        for prefix in tracked.map_or(&[][..], |tracked| &tracked.prefixes[..]) {
            if let Some(clients) = self.prefixes.get_mut(prefix) {
                clients.retain(|other| *other != client);
                if clients.is_empty() {
                    self.prefixes.remove(prefix);
                }
            }
        }
        self.gone += 1;
        if self.clients.is_empty() {
            if let (Some(reader), Some(tier)) = (self.reader.take(), tier::tier()) {
                tier.untrack_all(reader.bit());
            }
            self.slots.clear();
            self.table = Table::default();
            self.evicted.clear();
            self.gone = 0;
        } else if self.gone > GONE.max(self.clients.len()) {
            let clients = &self.clients;
            self.table.retain_clients(|id| clients.contains(&id));
            self.gone = 0;
        }
    }
}

fn until(deadline: Timestamp) -> Duration {
    let left = deadline.saturating_sub(clock::now());
    Duration::from_micros(u64::try_from(left).unwrap_or(0))
}

/// The content of an invalidation message.
#[derive(Clone, Copy)]
pub enum Invalidation<'k> {
    Key(&'k [u8]),
    Everything,
}

/// All clients of the network process, including the one that is being served.
pub struct Everybody<'c> {
    pub clients: &'c mut Clients,
    pub serving: Option<&'c mut Connection>,
    pub memory: &'c mut Memory,
    /// The number of bytes of output that may wait for a client.
    pub most_output: usize,
    /// The indexes of the clients that must be served because of a message.
    pub wakes: Vec<usize>,
}

impl Everybody<'_> {
    fn find(&mut self, id: u64) -> Option<&mut Connection> {
        if let Some(client) = self.serving.as_deref_mut()
            && client.session.id == id
        {
            return Some(client);
        }
        let place = self.clients.place_of(id)?;
        self.clients.get_mut(place)
    }

    fn tracked(&mut self, id: u64) -> Option<&mut Tracked> {
        self.find(id)?.session.tracking.as_deref_mut()
    }

    /// Notifies a client, or its REDIRECT target, of a change made by `author`.
    pub fn notify(&mut self, id: u64, invalidation: Invalidation<'_>, author: u64) {
        let Some(tracked) = self.tracked(id) else {
            return;
        };
        if tracked.no_loop && author == id {
            return;
        }
        let Some(other) = tracked.redirect else {
            return self.push(id, |client, out| {
                if client.session.protocol == Protocol::Resp3 {
                    write(invalidation, out);
                }
            });
        };
        // A message to the REDIRECT target does not wait for this client's reply.
        tracked.owed |= tracked.reading;
        let role = self.find(id).and_then(|client| client.session.login.role);
        let is_its_own = |client: &mut Connection| client.session.login.role == role;
        if self.find(other).is_some_and(is_its_own) {
            return self.push(other, |client, out| {
                write_as_target(&client.session, invalidation, out)
            });
        }
        if let Some(tracked) = self.tracked(id) {
            tracked.broken = true;
        }
        self.push(id, |client, out| {
            if client.session.protocol == Protocol::Resp3 {
                out.push_message(2);
                out.bulk(b"tracking-redir-broken");
                out.integer(i64::try_from(other).unwrap_or(i64::MAX));
            }
        });
    }

    fn push(&mut self, id: u64, write: impl FnOnce(&Connection, &mut Writer)) {
        let most = self.most_output;
        let Some(client) = self.find(id) else {
            return;
        };
        let room = most.saturating_sub(client.unsent());
        let mut out = Writer::new(client.session.protocol, room);
        write(client, &mut out);
        if out.overflowed() || !client.keep_push(out.as_bytes()) {
            client.killed = true;
        }
        self.wake(id);
        // The client that is being served is counted at the end of its turn.
        if let Some(place) = self.clients.place_of(id)
            && let Some(client) = self.clients.get_mut(place)
        {
            self.memory.count(client);
            self.wakes.extend(self.memory.bound(self.clients));
        }
    }

    fn wake(&mut self, id: u64) {
        let is_served = |client: &Connection| client.session.id == id;
        if !self.serving.as_deref().is_some_and(is_served) {
            self.wakes.extend(self.clients.place_of(id));
        }
    }

    /// Notifies a client with prefixes of a key, or of all keys, in the cache of this slot. Does nothing unless this is
    /// the cache of the client's database and the client may read it.
    fn notify_broadcast(
        &mut self,
        id: u64,
        slot: u32,
        invalidation: Invalidation<'_>,
        author: u64,
    ) {
        let Some(client) = self.find(id) else {
            return;
        };
        let session = &mut client.session;
        let followed = standing(session).map(followed_slot);
        if followed == Some(Some(slot)) {
            return self.notify(id, invalidation, author);
        }
        // The client may hold values of the cache that it followed before its database or its privileges changed.
        if let Some(tracked) = session.tracking.as_deref_mut()
            && (followed.is_none() || tracked.slot == Some(slot))
            && !fault::on(Fault::FormerCacheNotOwed)
        {
            tracked.owed = true;
            self.wake(id);
        }
    }
}

/// Returns the client's permission if it is still valid.
pub fn standing(session: &Session) -> Option<&Permission> {
    let permission = session.permission.as_deref()?;
    (permission.holds() && !permission.is_past(session.login.by_password)).then_some(permission)
}

/// Returns the slot of the cache whose keys a client with prefixes is notified of: the cache of its database. Returns
/// None if the client may not read the cache, or if policies may hide rows from it.
pub fn followed_slot(permission: &Permission) -> Option<u32> {
    let target = &permission.target;
    let follows = target.privileges.has(Privileges::READ) && permission.may_send_keys();
    tier::tier()
        .filter(|_| follows)
        .and_then(|tier| target.cache.slot(tier))
}

/// Writes a message to a client that is the REDIRECT target of another client.
fn write_as_target(session: &Session, invalidation: Invalidation<'_>, out: &mut Writer) {
    if session.protocol == Protocol::Resp3 || channels::is_reader(&session.state, session.protocol)
    {
        write(invalidation, out);
    }
}

fn write(invalidation: Invalidation<'_>, out: &mut Writer) {
    match out.protocol() {
        Protocol::Resp3 => {
            out.push_message(2);
            out.bulk(b"invalidate");
        }
        Protocol::Resp2 => {
            out.push_message(3);
            out.bulk(b"message");
            out.bulk(b"__redis__:invalidate");
        }
    }
    match invalidation {
        Invalidation::Key(key) => {
            out.array(1);
            out.bulk(key);
        }
        Invalidation::Everything => out.null(),
    }
}

/// Returns the clients of each prefix of the key. Makes at most as many lookups as the key has bytes, however many
/// prefixes exist.
fn fitting<'p>(prefixes: &'p Prefixes, key: &'p [u8]) -> impl Iterator<Item = &'p Vec<u64>> {
    let mut rest = Some(key);
    std::iter::from_fn(move || {
        loop {
            let range = (Bound::Unbounded, Bound::Included(rest?));
            let (prefix, clients) = prefixes.range::<[u8], _>(range).next_back()?;
            // Each earlier prefix of the key is shorter, and so is a prefix of the part that this prefix and the key
            // have in common.
            let same = |(one, other): &(&u8, &u8)| one == other;
            let common = prefix.iter().zip(key).take_while(same).count();
            if common == prefix.len() {
                rest = common.checked_sub(1).and_then(|shorter| key.get(..shorter));
                return Some(clients);
            }
            rest = key.get(..common);
        }
    })
}

impl Tracking {
    pub fn invalidate_key(
        &mut self,
        everybody: &mut Everybody<'_>,
        slot: u32,
        key: &[u8],
        author: u64,
    ) {
        if let Some(node) = self.table.remove(slot, key) {
            for id in node.clients {
                everybody.notify(id, Invalidation::Key(key), author);
            }
        }
        for id in fitting(&self.prefixes, key).flatten() {
            everybody.notify_broadcast(*id, slot, Invalidation::Key(key), author);
        }
    }

    pub fn invalidate_cache(&mut self, everybody: &mut Everybody<'_>, slot: u32) {
        for id in self.table.remove_cache(slot) {
            everybody.notify(id, Invalidation::Everything, 0);
        }
        let broadcast: HashSet<u64> = self.prefixes.values().flatten().copied().collect();
        for id in broadcast {
            everybody.notify_broadcast(id, slot, Invalidation::Everything, 0);
        }
    }

    pub fn invalidate_all(&mut self, everybody: &mut Everybody<'_>) {
        self.table = Table::default();
        for id in &self.clients {
            everybody.notify(*id, Invalidation::Everything, 0);
        }
    }

    pub fn invalidate_expired(&mut self, everybody: &mut Everybody<'_>) {
        let now = clock::now();
        while let Some((_, node)) = self.table.take_due(now) {
            for id in node.clients {
                everybody.notify(id, Invalidation::Key(&node.key), 0);
            }
        }
    }
}
