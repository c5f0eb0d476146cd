//! Publishes the clients for CLIENT LIST and pgcache's views, and requests that a client be disconnected (CLIENT KILL).
//!
//! Each network process publishes its own clients; every process may read all clients and request that one be
//! disconnected. The caller checks the privilege.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use crate::pg::resp::client_registry::claims::Claimed;
use crate::pg::resp::client_registry::place::{Place, Shown};
use crate::pg::resp::client_registry::registry_layout::ClientRegistry;
use crate::pg::worker::background;

impl ClientRegistry {
    /// Publishes a client's information in its place. With `all`, also publishes the texts that seldom change.
    pub fn show(&self, claimed: &Claimed, shown: &Shown<&[u8]>, all: bool) {
        if let Some(place) = self.places.get(claimed.0) {
            place.write(shown, all);
        }
    }

    /// Returns all clients, with the process ids of their network processes.
    pub fn clients(&self) -> impl Iterator<Item = (u32, Shown)> + use<> {
        let registry = *self;
        let used = self.used();
        used.iter().filter_map(move |place| {
            let (network, shown) = place.read()?;
            Some((registry.network(network).pid.load(Relaxed), shown))
        })
    }

    /// Requests that the client with this id be disconnected. Returns whether the client exists.
    pub fn end(&self, id: u64) -> bool {
        let is_it = |place: &&Place| place.id() == id && place.network.load(Acquire) != 0;
        let Some(place) = self.used().iter().find(is_it) else {
            return false;
        };
        let number = place.network.load(Acquire);
        place.end.store(id, SeqCst);
        let Some(number) = number.checked_sub(1) else {
            return false;
        };
        let network = self.network(number as usize);
        network.ends.fetch_add(1, SeqCst);
        background::wake(network.pid.load(Acquire));
        true
    }

    /// Returns whether the disconnection of any client of this network process was requested after the last call.
    #[inline]
    pub fn has_ends(&self, number: usize) -> bool {
        let ends = &self.network(number).ends;
        ends.load(Relaxed) != 0 && ends.swap(0, SeqCst) != 0
    }

    /// Returns whether the disconnection of the client in this place was requested.
    pub fn is_to_end(&self, claimed: &Claimed, id: u64) -> bool {
        let place = self.places.get(claimed.0);
        place.is_some_and(|place| place.end.load(SeqCst) == id)
    }
}
