//! Claims and frees clients' places in the client registry. A place is claimed by one atomic exchange, so two clients
//! never share a place.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::pg::resp::client_registry::place::Place;
use crate::pg::resp::client_registry::registry_layout::ClientRegistry;

/// The place of a client of this process.
pub struct Claimed(pub(super) usize);

impl ClientRegistry {
    /// Returns an id for a new client. Ids are not reused until the server restarts.
    pub fn new_id(&self) -> u64 {
        self.head.last_id.fetch_add(1, Relaxed) + 1
    }

    /// Claims a place for a client of this network process; returns None if all places are taken. First tries the
    /// places in `former`, which this process has freed and other processes may have claimed since.
    pub fn claim(&self, number: usize, former: &mut Vec<Claimed>) -> Option<Claimed> {
        let claims = |at: usize| {
            let place = self.places.get(at)?;
            let own = number as u32 + 1;
            let claimed = place.network.compare_exchange(0, own, AcqRel, Relaxed);
            claimed.ok().map(|_| {
                self.network(number).claimed.fetch_add(1, Relaxed);
                Claimed(at)
            })
        };
        while let Some(Claimed(at)) = former.pop() {
            if let Some(claimed) = claims(at) {
                return Some(claimed);
            }
        }
        let most = self.places.len() as u64;
        let more = |fresh| (fresh < most).then_some(fresh + 1);
        match self.head.fresh.fetch_update(Relaxed, Relaxed, more) {
            Ok(fresh) => claims(fresh as usize),
            Err(_) => {
                let found = self.head.found.load(Relaxed) as usize;
                let mut all =
                    (1..=self.places.len()).map(|step| (found + step) % self.places.len());
                let claimed = all.find_map(claims)?;
                self.head.found.store(claimed.0 as u64, Relaxed);
                Some(claimed)
            }
        }
    }

    /// Frees a place.
    pub(super) fn clear(&self, place: &Place) {
        if let Some(number) = place.clear().checked_sub(1) {
            self.network(number as usize).claimed.fetch_sub(1, Relaxed);
        }
    }

    /// Frees the place of a client that has disconnected.
    pub fn give_back(&self, claimed: &Claimed) {
        if let Some(place) = self.places.get(claimed.0) {
            self.clear(place);
        }
    }

    /// Returns the place of the client with this id, if it is a client of this network process; otherwise None.
    pub fn place_of(&self, number: usize, id: u64) -> Option<Claimed> {
        let own = number as u32 + 1;
        let is_it = |place: &Place| place.id() == id && place.network.load(Relaxed) == own;
        self.used().iter().position(is_it).map(Claimed)
    }
}
