//! What the client registry is made of: its head, a place for each client, and what every network process counts.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use crate::pg::resp::catalog_requests::MOST_PROCESSES;
use crate::pg::resp::client_registry::place::Place;
use crate::pg::resp::shared_memory;

/// What is counted: one number each for every network process. New ones come at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Connections that were taken, and that were turned away.
    Connections,
    Rejected,
    Commands,
    /// Turns of clients in which commands ran.
    Batches,
    Hits,
    Misses,
    Input,
    Output,
    FailedAuthentications,
    /// Clients that were cut off, as they did not read.
    CutOff,
    /// Clients that were ended by others.
    Killed,
    /// Questions to executors, and how often there was no place for one.
    Questions,
    QueueFull,
    /// Messages from SQL, and how often the ring went round before the network process had read it.
    Messages,
    Overflows,
    /// Connections whose TLS did not come about.
    FailedHandshakes,
    /// Clients that were ended as all of them took too much memory.
    Evicted,
    /// Microseconds of processor time of the network processes.
    CpuUser,
    CpuSystem,
}

/// How many there are.
pub(super) const FIGURES: usize = Counter::CpuSystem as usize + 1;

/// What was counted, by [`Counter`].
pub type Counters = [u64; FIGURES];

#[repr(C, align(64))]
pub(super) struct NetworkProcess {
    /// 0: there is none.
    pub(super) pid: AtomicU32,
    /// Somebody wants clients of it to be ended.
    pub(super) ends: AtomicU32,
    /// Places that were claimed for it, and how many clients it takes now.
    pub(super) claimed: AtomicU64,
    pub(super) room: AtomicU64,
    pub(super) clients: AtomicU64,
    /// Clients that are told of changes.
    pub(super) tracking: AtomicU64,
    /// Keys whose changes clients are told of.
    pub(super) tracked_keys: AtomicU64,
    /// Clients that CLIENT PAUSE holds.
    pub(super) blocked: AtomicU64,
    /// Bytes of memory that its clients take, and the largest of them.
    pub(super) memory: AtomicU64,
    pub(super) largest_client: AtomicU64,
    pub(super) largest_batch: AtomicU64,
    pub(super) counters: [AtomicU64; FIGURES],
    /// What the figures were when they were set back.
    pub(super) base: [AtomicU64; FIGURES],
}

#[repr(C)]
pub(super) struct Head {
    pub(super) database: AtomicU32,
    /// The last client's number.
    pub(super) last_id: AtomicU64,
    /// Places from here on were never used.
    pub(super) fresh: AtomicU64,
    /// Where a place was found last, when there were no fresh ones.
    pub(super) found: AtomicU64,
    /// When the figures were set back.
    pub(super) reset: AtomicI64,
    /// Until when commands are held back, twice, and 1 for all commands; 0: they are not.
    pub(super) pause: AtomicI64,
    /// Hits and misses that executors have counted, and what they were when they were set back.
    pub(super) reads: [AtomicU64; 2],
    pub(super) reads_base: [AtomicU64; 2],
    pub(super) networks: [NetworkProcess; MOST_PROCESSES],
}

/// Bytes of a client registry with places for so many clients.
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
    /// None where nothing listens.
    pub fn of_server() -> Option<ClientRegistry> {
        let area = shared_memory::of_server()?;
        // SAFETY: as many bytes lie there from an aligned address on, zeroed at the start, for as
        // long as the server lives; all that is in them is atomic.
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
