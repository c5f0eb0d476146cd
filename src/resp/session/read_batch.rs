//! What clients have sent is read, and cut into requests, some clients at a time before the first of them
//! is served: so what is stored under their keys is on its way from memory meanwhile.
//!
//! Guards that a client is served what was read before the messages of others were taken in: it has sent it
//! before, so who revokes a right, and then tells the client, is obeyed. And that nothing is lost: what was
//! read and not yet served when a turn failed is served in the next one.

use std::collections::VecDeque;

use pgcache_resp::{Batch, Limits};

use crate::cache::memory::raw::{self, Entries};
use crate::resp::session::clients::Clients;
use crate::resp::session::connection::{Connection, Received};
use crate::resp::session::{Session, Waits};

/// Clients that are read before the first is served. What they have sent, and what was asked for, is to be
/// in the processor's caches still when they are.
const CLIENTS: usize = 16;
/// Bytes that are read at once.
const READ: usize = 64 << 10;

/// What was read of a client.
#[derive(Default)]
pub struct Read {
    place: usize,
    id: u64,
    room: Vec<u8>,
    pub received: Received,
    /// The requests at the beginning of what came, if it begins with one.
    pub batch: Batch,
    /// Of their keys: the index was asked for where these are.
    hashes: Vec<u64>,
}

impl Read {
    /// The number of the client.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The bytes that came.
    pub fn bytes(&self) -> &[u8] {
        let count = match self.received {
            Received::Bytes(count) => count,
            Received::Nothing | Received::End => 0,
        };
        self.room.get(..count).unwrap_or_default()
    }
}

/// What was read and is not served.
#[derive(Default)]
pub struct ReadBatch {
    reads: Vec<Read>,
    /// Of these so many are filled, and of those so many served.
    filled: usize,
    served: usize,
}

impl ReadBatch {
    /// Whether something was read that is to be served.
    pub fn waits(&self) -> bool {
        self.served < self.filled
    }

    /// Reads the next of those who are ready, at most so many, unless there are some who were read before.
    /// How many were taken from the list.
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
                ask_index(client, read);
            }
        }
        self.ask_entries();
        taken
    }

    /// The next to be served, and its client's place and number. It is given back after that.
    pub fn take(&mut self) -> Option<(usize, u64, Read)> {
        if !self.waits() {
            return None;
        }
        let read = std::mem::take(self.reads.get_mut(self.served)?);
        self.served += 1;
        self.ask_entries();
        Some((read.place, read.id, read))
    }

    /// Asks for the entries of the next to be served; their index was asked for some time ago.
    fn ask_entries(&self) {
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

/// What was decided for the client may count no more: then it is asked for in vain.
fn ask_index(client: &Connection, read: &mut Read) {
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

/// Asks for what is stored under the keys of requests that were cut when others had been run.
pub fn ask(client: &Session, batch: &Batch, buffer: &[u8]) {
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
