//! The layout of the client registry: its head, a place for each client, and the counters of every network process.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use crate::pg::resp::client_registry::place::Place;
use crate::pg::resp::process::MOST_PROCESSES;
use crate::pg::resp::shared_memory;

/// The counters of a network process. A new counter goes to the end, because readers identify counters by number.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Accepted connections.
    Connections,
    Rejected,
    Commands,
    /// Batches: the commands of a client that the event loop ran together.
    Batches,
    Hits,
    Misses,
    Input,
    Output,
    FailedAuthentications,
    /// Clients that the server disconnected because they did not read, or because a command failed with an error.
    CutOff,
    /// Clients that the server disconnected on request, or because their role may no longer log in.
    Killed,
    /// Catalog requests to executors.
    Questions,
    /// How often the queue was full.
    QueueFull,
    /// Messages from SQL.
    Messages,
    /// How often writers overwrote unread messages in the ring.
    Overflows,
    /// Connections whose TLS handshake failed.
    FailedHandshakes,
    /// Clients that the server disconnected because all clients together took too much memory.
    Evicted,
    /// Microseconds of processor time of the network processes.
    CpuUser,
    CpuSystem,
}

pub(super) const FIGURES: usize = Counter::CpuSystem as usize + 1;

/// The values of all counters, indexed by [`Counter`].
pub type Counters = [u64; FIGURES];

/// The state and the counters of one network process.
#[repr(C, align(64))]
pub(super) struct NetworkProcess {
    /// The process id; 0 if no process runs.
    pub(super) pid: AtomicU32,
    /// Not 0 if the disconnection of a client of this process was requested.
    pub(super) ends: AtomicU32,
    /// The number of places claimed for this process.
    pub(super) claimed: AtomicU64,
    /// The number of clients that this process accepts.
    pub(super) room: AtomicU64,
    /// The number of clients that this process has.
    pub(super) clients: AtomicU64,
    /// Clients that track keys.
    pub(super) tracking: AtomicU64,
    /// Keys that these clients track.
    pub(super) tracked_keys: AtomicU64,
    /// Clients that CLIENT PAUSE holds.
    pub(super) blocked: AtomicU64,
    /// Bytes of memory that all its clients take.
    pub(super) memory: AtomicU64,
    /// Bytes of memory that its largest client takes.
    pub(super) largest_client: AtomicU64,
    pub(super) largest_batch: AtomicU64,
    pub(super) counters: [AtomicU64; FIGURES],
    /// The values of the counters at their last reset.
    pub(super) base: [AtomicU64; FIGURES],
}

impl NetworkProcess {
    /// Sets the values of a process that has no clients and accepts none.
    pub(super) fn set_empty(&self) {
        for number in [
            &self.room,
            &self.clients,
            &self.tracking,
            &self.tracked_keys,
            &self.memory,
            &self.largest_client,
        ] {
            number.store(0, Relaxed);
        }
    }
}

/// The part of the client registry that concerns all clients.
#[repr(C)]
pub(super) struct Head {
    pub(super) database: AtomicU32,
    /// The id of the last client.
    pub(super) last_id: AtomicU64,
    /// The first place that was never used. No later place was ever used either.
    pub(super) fresh: AtomicU64,
    /// The place that the last search found. The next search begins after it. Read only after every place was used
    /// once.
    pub(super) found: AtomicU64,
    /// The time of the last reset.
    pub(super) reset: AtomicI64,
    /// Twice the time until which CLIENT PAUSE holds back commands, plus 1 if it holds back all commands and not only
    /// writes; 0 if no pause is in effect.
    pub(super) pause: AtomicI64,
    /// Hits and misses that executors have counted.
    pub(super) reads: [AtomicU64; 2],
    /// The values of `reads` at the last reset.
    pub(super) reads_base: [AtomicU64; 2],
    pub(super) networks: [NetworkProcess; MOST_PROCESSES],
}

/// Returns the bytes of a client registry with places for this number of clients.
pub fn bytes(clients: usize) -> usize {
    places_at() + clients * size_of::<Place>()
}

fn places_at() -> usize {
    size_of::<Head>().next_multiple_of(64)
}

/// The client registry of this server.
#[derive(Clone, Copy)]
pub struct ClientRegistry {
    pub(super) head: &'static Head,
    pub(super) places: &'static [Place],
}

impl ClientRegistry {
    /// Returns the client registry; None if the Redis protocol is off.
    pub fn of_server() -> Option<ClientRegistry> {
        let area = shared_memory::of_server()?;
        // SAFETY: the shared memory begins at an aligned address, has the bytes of `bytes`, is zeroed at the server's
        // start, and lives as long as the server; all its contents are atomic.
        unsafe {
            Some(ClientRegistry {
                head: area.registry.cast().as_ref(),
                places: std::slice::from_raw_parts(
                    area.registry.add(places_at()).cast().as_ptr(),
                    area.clients,
                ),
            })
        }
    }

    pub(super) fn network(&self, number: usize) -> &'static NetworkProcess {
        &self.head.networks[number % MOST_PROCESSES]
    }

    pub(super) fn used(&self) -> &'static [Place] {
        let fresh = self.head.fresh.load(Relaxed) as usize;
        self.places.get(..fresh).unwrap_or(self.places)
    }
}
