//! Which clients of a network process track what, and telling them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::time::{Duration, Instant};

use pgcache_resp::{Protocol, Writer};

use super::table::{Node, Table};
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

/// After it was woken for a change a network process does not ask to be woken for so long, and looks itself:
/// or writers would pay for a signal each time.
const QUIET: Duration = Duration::from_millis(1);
/// After so many clients have gone their numbers are looked for and forgotten.
const GONE: usize = 1000;

/// Prefixes, and who is told of all keys that begin with them.
pub type Prefixes = BTreeMap<Box<[u8]>, Vec<u64>>;

/// What a network process knows of its clients that track.
#[derive(Default)]
pub struct Tracking {
    number: usize,
    /// While there are any.
    pub reader: Option<Reader>,
    clients: HashSet<u64>,
    /// Clients that are notified instead of others.
    redirects: HashMap<u64, u64>,
    gone: usize,
    /// Slots of which changes are asked for.
    slots: HashSet<u32>,
    pub table: Table,
    /// Keys that had to go for others, and who has read them.
    pub evicted: Vec<Node>,
    /// Who is told of all keys with a prefix.
    pub prefixes: Prefixes,
    pub most: usize,
    woken: Option<Instant>,
}

impl Tracking {
    pub fn new(number: usize) -> Tracking {
        // A predecessor that was ended by force has left its marks.
        if let (Some(tier), Some(reader)) = (tier::tier(), Reader::begin(number)) {
            tier.untrack_all(reader.bit());
        }
        Tracking {
            number,
            most: settings::tracking_keys(),
            ..Tracking::default()
        }
    }

    /// Takes over what the settings say now.
    pub fn read_settings(&mut self) {
        self.most = settings::tracking_keys();
    }

    /// Whether anybody tracks.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.reader.is_some()
    }

    /// How many do.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// How many keys they have read that have not changed since.
    pub fn keys(&self) -> usize {
        self.table.len()
    }

    /// Whether somebody is to be told something.
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

    /// Before a sleep of this length: how long it may be, None for ever. Zero: there is news.
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
            reader.is_awake();
            if reader.has_news() {
                self.woken = Some(Instant::now());
            }
        }
    }

    /// Is told of the changes of a slot from now on.
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

    /// Notifies the client that a lost connection had named for REDIRECT: of the keys that this connection
    /// has read it will receive nothing more. Returns the place of that client.
    pub fn redirect_lost(
        &mut self,
        client: u64,
        clients: &mut Clients,
        most_output: usize,
    ) -> Option<usize> {
        let target = self.redirects.remove(&client)?;
        if fault::on(Fault::LostRedirectNotTold) {
            return None;
        }
        let place = clients.place_of(target)?;
        let other = clients.get_mut(place)?;
        let room = most_output.saturating_sub(other.unsent());
        let mut out = Writer::new(other.session.protocol, room);
        write_as_target(&other.session, Told::Everything, &mut out);
        if out.overflowed() || !other.keep_push(out.as_bytes()) {
            other.killed = true;
        }
        Some(place)
    }

    /// Owes every client that tracks the message that everything has changed. Returns their places.
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

    /// A client tracks no more, or is gone: `tracked` was what it had asked for.
    pub fn end(&mut self, client: u64, tracked: Option<&Tracked>) {
        self.redirects.remove(&client);
        if !self.clients.remove(&client) {
            return;
        }
        // Not looked for among all prefixes: many clients may go at once.
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

/// What a client is told.
#[derive(Clone, Copy)]
pub enum Told<'k> {
    Key(&'k [u8]),
    Everything,
}

/// All clients, the one that is being served among them.
pub struct Everybody<'c> {
    pub clients: &'c mut Clients,
    pub serving: Option<&'c mut Connection>,
    pub memory: &'c mut Memory,
    /// Bytes that may wait for a client.
    pub most_output: usize,
    /// Places of those who are to be served.
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

    /// Tells a client of a change by `author`, or whom it has named.
    pub fn tell(&mut self, id: u64, told: Told<'_>, author: u64) {
        let Some(tracked) = self.tracked(id) else {
            return;
        };
        if tracked.no_loop && author == id {
            return;
        }
        let Some(other) = tracked.redirect else {
            return self.push(id, |client, out| {
                if client.session.protocol == Protocol::Resp3 {
                    write(told, out);
                }
            });
        };
        // What the other one is sent does not wait for this one's reply.
        tracked.owed |= tracked.reading;
        let role = self.find(id).and_then(|client| client.session.login.role);
        let is_its_own = |client: &mut Connection| client.session.login.role == role;
        if self.find(other).is_some_and(is_its_own) {
            return self.push(other, |client, out| {
                write_as_target(&client.session, told, out)
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

    /// Tells a client with a prefix of a key, or of all keys, of the cache of this slot, if that is the
    /// one of its database and it may read it.
    fn tell_broadcast(&mut self, id: u64, slot: u32, told: Told<'_>, author: u64) {
        let Some(client) = self.find(id) else {
            return;
        };
        let session = &mut client.session;
        match standing(session) {
            Some(permission) => {
                let cache = &permission.target.cache;
                let is_its_own = tier::tier().and_then(|tier| cache.slot(tier)) == Some(slot);
                if is_its_own
                    && permission.target.privileges.has(Privileges::READ)
                    && permission.tells_keys()
                {
                    self.tell(id, told, author);
                }
            }
            None => {
                if let Some(tracked) = session.tracking.as_deref_mut() {
                    tracked.owed = true;
                }
                self.wake(id);
            }
        }
    }
}

/// What was decided of a client, if it counts now.
pub fn standing(session: &Session) -> Option<&Permission> {
    let permission = session.permission.as_deref()?;
    (permission.holds() && !permission.is_past(session.login.by_password)).then_some(permission)
}

/// Writes a message for a client that REDIRECT has named.
fn write_as_target(session: &Session, told: Told<'_>, out: &mut Writer) {
    if session.protocol == Protocol::Resp3 || channels::is_reader(&session.state, session.protocol)
    {
        write(told, out);
    }
}

fn write(told: Told<'_>, out: &mut Writer) {
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
    match told {
        Told::Key(key) => {
            out.array(1);
            out.bulk(key);
        }
        Told::Everything => out.null(),
    }
}

/// Who is told of a key: looks for no more prefixes than the key has bytes, however many there are.
fn fitting<'p>(prefixes: &'p Prefixes, key: &'p [u8]) -> impl Iterator<Item = &'p Vec<u64>> {
    let mut rest = Some(key);
    std::iter::from_fn(move || {
        loop {
            let range = (Bound::Unbounded, Bound::Included(rest?));
            let (prefix, clients) = prefixes.range::<[u8], _>(range).next_back()?;
            // Whatever fits and comes before this one is shorter, and begins both.
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
    pub fn tell_key(&mut self, everybody: &mut Everybody<'_>, slot: u32, key: &[u8], author: u64) {
        if let Some(node) = self.table.remove(slot, key) {
            for id in node.clients {
                everybody.tell(id, Told::Key(key), author);
            }
        }
        for id in fitting(&self.prefixes, key).flatten() {
            everybody.tell_broadcast(*id, slot, Told::Key(key), author);
        }
    }

    pub fn tell_cache(&mut self, everybody: &mut Everybody<'_>, slot: u32) {
        for id in self.table.remove_cache(slot) {
            everybody.tell(id, Told::Everything, 0);
        }
        let broadcast: HashSet<u64> = self.prefixes.values().flatten().copied().collect();
        for id in broadcast {
            everybody.tell_broadcast(id, slot, Told::Everything, 0);
        }
    }

    pub fn tell_all(&mut self, everybody: &mut Everybody<'_>) {
        self.table = Table::default();
        for id in &self.clients {
            everybody.tell(*id, Told::Everything, 0);
        }
    }

    pub fn tell_expired(&mut self, everybody: &mut Everybody<'_>) {
        let now = clock::now();
        while let Some((_, node)) = self.table.take_due(now) {
            for id in node.clients {
                everybody.tell(id, Told::Key(&node.key), 0);
            }
        }
    }
}
