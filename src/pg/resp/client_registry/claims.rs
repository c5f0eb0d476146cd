//! Places on the client registry: who gets one, and gives it back.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::pg::resp::client_registry::layout::ClientRegistry;
use crate::pg::resp::client_registry::place::Place;

/// The place of a client of this process.
pub struct Claimed(pub(super) usize);

impl ClientRegistry {
    /// A number for a client, never used again in this life of the server.
    pub fn new_id(&self) -> u64 {
        self.head.last_id.fetch_add(1, Relaxed) + 1
    }

    /// A place for a client of this network process; None: there is none. `former` was given back by this
    /// process, and others may have claimed it since.
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

    /// A place is nobody's from here on.
    pub(super) fn clear(&self, place: &Place) {
        if let Some(number) = place.clear().checked_sub(1) {
            self.network(number as usize).claimed.fetch_sub(1, Relaxed);
        }
    }

    /// The client of a place is gone.
    pub fn give_back(&self, claimed: &Claimed) {
        if let Some(place) = self.places.get(claimed.0) {
            self.clear(place);
        }
    }

    /// The place of a client of this network process, where that is lost.
    pub fn place_of(&self, number: usize, id: u64) -> Option<Claimed> {
        let own = number as u32 + 1;
        let is_it = |place: &Place| place.id() == id && place.network.load(Relaxed) == own;
        self.used().iter().position(is_it).map(Claimed)
    }
}
