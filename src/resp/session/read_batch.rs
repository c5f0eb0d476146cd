//! Reads the input of several clients, and splits it into requests, before the first of these clients is served. So the
//! processor prefetches the entries of later requests while it serves earlier requests. It runs no request.
//!
//! Two rules hold. First, invalidation messages are accepted after the input is read and before it is served. So if a
//! session commits a REVOKE and then notifies the client, each command that the client sends after the notification is
//! served with the new privileges. In the opposite order, a command could be read after the messages were accepted, and
//! be served with the old privileges. Second, no input is lost: input that was read but not served when a turn failed
//! is served in the next turn.

use std::collections::VecDeque;

use pgcache_resp::{Batch, Limits};

use crate::cache::memory::raw::{self, Entries};
use crate::resp::session::clients::Clients;
use crate::resp::session::connection::{Connection, Received};
use crate::resp::session::{Session, Waits};

/// The number of clients that are read before the first client is served. It is small enough that their input and the
/// prefetched memory are still in the processor's caches when they are served.
const CLIENTS: usize = 16;
/// The number of bytes that are read from a client at once.
const READ: usize = 64 << 10;

/// The input read from one client.
#[derive(Default)]
pub struct Read {
    place: usize,
    id: u64,
    room: Vec<u8>,
    pub received: Received,
    /// The complete requests at the beginning of the input, if the input begins with a request.
    pub batch: Batch,
    /// The hashes of the requests' keys, whose index buckets were prefetched.
    hashes: Vec<u64>,
}

impl Read {
    /// Returns the id of the client.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the input.
    pub fn bytes(&self) -> &[u8] {
        let count = match self.received {
            Received::Bytes(count) => count,
            Received::Nothing | Received::End => 0,
        };
        self.room.get(..count).unwrap_or_default()
    }
}

/// The input that was read and is not yet served.
#[derive(Default)]
pub struct ReadBatch {
    reads: Vec<Read>,
    /// The number of `reads` that are filled.
    filled: usize,
    /// The number of filled `reads` that were served.
    served: usize,
}

impl ReadBatch {
    /// Returns whether input waits to be served.
    pub fn waits(&self) -> bool {
        self.served < self.filled
    }

    /// Reads at most `most` clients from the list, unless input that was read before still waits. Returns the number of
    /// clients taken from the list.
    pub fn read(
        &mut self,
        clients: &mut Clients,
        ready: &mut VecDeque<usize>,
        most: usize,
        requests: &Limits,
    ) -> usize {
        if self.waits() {
            return 0;
        }
        self.reads.resize_with(CLIENTS, Read::default);
        self.filled = 0;
        self.served = 0;
        let mut taken = 0;
        while taken < most && self.filled < CLIENTS {
            let Some(place) = ready.pop_front() else {
                break;
            };
            taken += 1;
            if let Some(client) = clients.get_mut(place)
                && let Some(read) = self.reads.get_mut(self.filled)
            {
                self.filled += 1;
                read.place = place;
                read.id = client.session.id;
                read_one(client, read, requests);
                prefetch_index(client, read);
            }
        }
        self.prefetch_entries();
        taken
    }

    /// Takes the next input to serve, with its client's index and id. The caller gives it back afterwards.
    pub fn take(&mut self) -> Option<(usize, u64, Read)> {
        if !self.waits() {
            return None;
        }
        let read = std::mem::take(self.reads.get_mut(self.served)?);
        self.served += 1;
        self.prefetch_entries();
        Some((read.place, read.id, read))
    }

    /// Prefetches the entries of the next input to serve, whose index buckets were prefetched earlier.
    fn prefetch_entries(&self) {
        if self.waits()
            && let Some(next) = self.reads.get(self.served)
        {
            raw::prefetch_entries(&next.hashes);
        }
    }

    pub fn give_back(&mut self, read: Read) {
        let last = self.served.checked_sub(1);
        if let Some(empty) = last.and_then(|last| self.reads.get_mut(last)) {
            *empty = read;
        }
    }
}

fn read_one(client: &mut Connection, read: &mut Read, requests: &Limits) {
    read.batch.clear();
    read.received = Received::Nothing;
    let reads = client.hungry && client.readable && !client.closing && !client.killed;
    if !reads || client.session.waits != Waits::Nothing || !client.has_begun() {
        return;
    }
    read.room.resize(READ, 0);
    read.received = client.read(&mut read.room).unwrap_or(Received::End);
    let begins = client.input.is_empty() && client.parser.is_between();
    if begins && client.session.login.role.is_some() {
        let count = read.bytes().len();
        let bytes = read.room.get(..count).unwrap_or_default();
        read.batch.cut(bytes, requests);
    }
}

/// Prefetches the index buckets of the keys. If the client's permission is no longer valid, the prefetch is useless but
/// harmless.
fn prefetch_index(client: &Connection, read: &mut Read) {
    let mut hashes = std::mem::take(&mut read.hashes);
    hashes.clear();
    let permission = client.session.permission.as_ref();
    if let Some(entries) =
        permission.and_then(|permission| Entries::of(&permission.target.cache, 0))
    {
        let keys = read.batch.keys(read.bytes());
        hashes.extend(keys.map(|key| entries.prefetch_index(key)));
    }
    read.hashes = hashes;
}

/// Prefetches the entries of requests that were split from the buffer after earlier requests had run.
pub fn prefetch(client: &Session, batch: &Batch, buffer: &[u8]) {
    if batch.len() < 2 {
        return;
    }
    let permission = client.permission.as_ref();
    if let Some(entries) =
        permission.and_then(|permission| Entries::of(&permission.target.cache, 0))
    {
        entries.prefetch(batch.keys(buffer));
    }
}
