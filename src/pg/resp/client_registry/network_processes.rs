//! The network processes in the client registry: their process ids, the database that they serve, the number and memory
//! of their clients, and the number of clients that a role has.

use std::array;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use pgrx::pg_sys::Oid;

use crate::pg::resp::client_registry::claims::Claimed;
use crate::pg::resp::client_registry::place::{Place, high, pair};
use crate::pg::resp::client_registry::registry_layout::{ClientRegistry, Counters, NetworkProcess};
use crate::pg::session::clock;
use crate::pg::worker::background;

/// Numbers of authenticated clients, over all network processes.
#[derive(Clone, Copy, Default)]
pub struct LoggedIn {
    pub of_role: usize,
    pub all: usize,
}

impl ClientRegistry {
    /// Stores the database that the Redis protocol serves.
    pub fn set_database(&self, database: Oid) {
        self.head.database.store(database.to_u32(), Relaxed);
    }

    /// Returns the database that the Redis protocol serves.
    pub fn database(&self) -> Oid {
        Oid::from_u32(self.head.database.load(Relaxed))
    }

    /// Registers this process as the network process with this index. Frees the places that its predecessor left, and
    /// returns the predecessor's counters, which this process continues.
    pub fn begin_network(&self, number: usize) -> Counters {
        for place in self.places {
            if place.network.load(Acquire) == number as u32 + 1 {
                self.clear(place);
            }
        }
        let network = self.network(number);
        network.set_empty();
        network.ends.store(0, Relaxed);
        network.pid.store(background::own_pid(), SeqCst);
        self.head
            .reset
            .compare_exchange(0, clock::now(), Relaxed, Relaxed)
            .ok();
        array::from_fn(|at| network.counters[at].load(Relaxed))
    }

    /// Records that the network process with this index has ended and has no clients.
    pub fn end_network(&self, number: usize) {
        let network = self.network(number);
        network.pid.store(0, SeqCst);
        network.set_empty();
    }

    /// Stores the memory of all clients of a network process, and the memory of the largest of them.
    #[inline]
    pub fn set_memory(&self, number: usize, all: usize, largest: usize) {
        let network = self.network(number);
        network.memory.store(all as u64, Relaxed);
        network.largest_client.store(largest as u64, Relaxed);
    }

    /// Returns the bytes of memory that the clients of all network processes take.
    pub fn clients_memory(&self) -> usize {
        let memory = |network: &NetworkProcess| network.memory.load(Relaxed);
        self.head.networks.iter().map(memory).sum::<u64>() as usize
    }

    /// Returns the network process, other than `number`, that has the largest client, if this client takes more than
    /// `size` bytes.
    pub fn network_with_larger_client(&self, number: usize, size: usize) -> Option<usize> {
        let networks = self.head.networks.iter().enumerate();
        let sizes =
            networks.map(|(at, network)| (network.largest_client.load(Relaxed) as usize, at));
        let (largest, at) = sizes.filter(|(_, at)| *at != number).max()?;
        (largest > size).then_some(at)
    }

    /// Wakes one network process.
    pub fn wake_network(&self, number: usize) {
        let pid = self.network(number).pid.load(SeqCst);
        if pid != 0 {
            background::wake(pid);
        }
    }

    /// Wakes all network processes.
    pub fn wake_networks(&self) {
        let pids = self
            .head
            .networks
            .iter()
            .map(|network| network.pid.load(SeqCst));
        pids.filter(|&pid| pid != 0).for_each(background::wake);
    }

    /// Stores the number of clients that a network process accepts.
    pub fn set_room(&self, number: usize, room: usize) {
        self.network(number).room.store(room as u64, SeqCst);
    }

    /// Returns the number of clients of a network process, including clients whose connections are on their way to it;
    /// None if it accepts no more clients.
    pub fn load(&self, number: usize) -> Option<u64> {
        let network = self.network(number);
        let claimed = network.claimed.load(Relaxed);
        let lives = network.pid.load(Acquire) != 0;
        (lives && claimed < network.room.load(Acquire)).then_some(claimed)
    }

    /// Returns the number of all clients, including clients whose connections are on their way to a network process.
    pub fn claimed(&self) -> u64 {
        let claimed = |network: &NetworkProcess| network.claimed.load(Relaxed);
        self.head.networks.iter().map(claimed).sum()
    }

    /// Returns the process id of a network process; 0 if it does not run.
    pub fn pid(&self, number: usize) -> u32 {
        self.network(number).pid.load(Acquire)
    }

    /// Returns the index of a place. A process sends it to the network process for which it has claimed the place.
    pub fn number_of(&self, claimed: &Claimed) -> u64 {
        claimed.0 as u64
    }

    /// Returns the place with this index, if it was claimed for this network process and has no client yet.
    pub fn take_over(&self, number: usize, place: u64) -> Option<Claimed> {
        let at = usize::try_from(place).ok()?;
        let own = number as u32 + 1;
        let place = self.places.get(at)?;
        (place.network.load(Acquire) == own && place.id() == 0).then_some(Claimed(at))
    }

    /// Stores the role of a client, so that other processes count the client as one of the role's; 0 means no role.
    pub fn set_role(&self, claimed: &Claimed, role: u32) {
        if let Some(place) = self.places.get(claimed.0) {
            // The version need not change, because readers of the role read only this word.
            let database = high(place.words[1].load(Relaxed));
            place.words[1].store(pair(role, database), SeqCst);
        }
    }

    /// Returns the numbers of other clients that have authenticated or are about to: of all, and of those with this
    /// role. Two clients that authenticate at the same moment count each other, so the server may refuse both, as
    /// Postgres may refuse two sessions.
    pub fn logged_in(&self, beside: &Claimed, role: u32) -> LoggedIn {
        let mut count = LoggedIn::default();
        let others =
            |(at, place): &(usize, &Place)| *at != beside.0 && place.network.load(Acquire) != 0;
        for (_, place) in self.used().iter().enumerate().filter(others) {
            let other = place.words[1].load(SeqCst) as u32;
            count.all += usize::from(other != 0);
            count.of_role += usize::from(other == role);
        }
        count
    }
}
