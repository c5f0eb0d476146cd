//! Stores the counters and gauges of the network processes, for INFO and for SQL. Each process stores its own values,
//! and readers receive the sums.

use std::array;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::pg::resp::client_registry::registry_layout::{
    ClientRegistry, Counter, Counters, Head, NetworkProcess,
};
use crate::pg::session::clock::{self, Timestamp};

/// Gauges: values that rise and fall.
pub struct Now {
    pub clients: u64,
    /// The number of clients that track keys.
    pub tracking: u64,
    /// The number of keys that clients track.
    pub tracked_keys: u64,
    /// Clients that CLIENT PAUSE holds.
    pub blocked: u64,
    /// The largest number of commands of a client that the event loop ran in one batch.
    pub largest_batch: u64,
}

impl ClientRegistry {
    /// Stores the counters and gauges of a network process.
    pub fn set_figures(&self, number: usize, counters: &Counters, now: &Now) {
        let network = self.network(number);
        for (place, counter) in network.counters.iter().zip(counters) {
            place.store(*counter, Relaxed);
        }
        network.clients.store(now.clients, Relaxed);
        network.tracking.store(now.tracking, Relaxed);
        network.tracked_keys.store(now.tracked_keys, Relaxed);
        network.blocked.store(now.blocked, Relaxed);
        if now.largest_batch > network.largest_batch.load(Relaxed) {
            network.largest_batch.store(now.largest_batch, Relaxed);
        }
    }

    /// Adds the hits and misses of commands that an executor ran on a table.
    pub fn add_reads(&self, reads: [u64; 2]) {
        for (sum, read) in self.head.reads.iter().zip(reads) {
            sum.fetch_add(read, Relaxed);
        }
    }

    /// Returns the sums over all processes since the last reset of the counters.
    pub fn counters(&self) -> Counters {
        let since = |sum: &AtomicU64, base: &AtomicU64| {
            let sum = sum.load(Relaxed);
            sum.saturating_sub(base.load(Relaxed))
        };
        let mut counters: Counters = array::from_fn(|at| {
            let of_network =
                |network: &NetworkProcess| since(&network.counters[at], &network.base[at]);
            self.head.networks.iter().map(of_network).sum()
        });
        let Head {
            reads, reads_base, ..
        } = self.head;
        counters[Counter::Hits as usize] += since(&reads[0], &reads_base[0]);
        counters[Counter::Misses as usize] += since(&reads[1], &reads_base[1]);
        counters
    }

    /// Returns the gauges of all network processes together.
    pub fn now(&self) -> Now {
        let networks = || self.head.networks.iter();
        let batch = networks().map(|network| network.largest_batch.load(Relaxed));
        Now {
            clients: networks()
                .map(|network| network.clients.load(Relaxed))
                .sum(),
            tracking: networks()
                .map(|network| network.tracking.load(Relaxed))
                .sum(),
            tracked_keys: networks()
                .map(|network| network.tracked_keys.load(Relaxed))
                .sum(),
            blocked: networks()
                .map(|network| network.blocked.load(Relaxed))
                .sum(),
            largest_batch: batch.max().unwrap_or(0),
        }
    }

    /// Resets the counters to 0.
    pub fn reset(&self) {
        for network in &self.head.networks {
            for (base, counter) in network.base.iter().zip(&network.counters) {
                base.store(counter.load(Relaxed), Relaxed);
            }
            network.largest_batch.store(0, Relaxed);
        }
        for (base, sum) in self.head.reads_base.iter().zip(&self.head.reads) {
            base.store(sum.load(Relaxed), Relaxed);
        }
        self.head.reset.store(clock::now(), Relaxed);
    }

    /// Returns the time of the last reset, from which the counters count.
    pub fn since(&self) -> Timestamp {
        self.head.reset.load(Relaxed)
    }
}
