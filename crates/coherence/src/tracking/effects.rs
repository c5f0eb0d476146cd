//! Changes of the shared state that both the writers' and the network process's steps make.

use super::model::{Invalidation, Message, RING, State, Violation};

impl State {
    /// Appends a record to the ring.
    pub fn append(&mut self, invalidation: Invalidation) {
        self.ring[self.head as usize % RING] = invalidation;
        self.head += 1;
    }

    pub fn say(&mut self, message: Message) {
        if let Some(place) = self.line.iter_mut().find(|place| place.is_none()) {
            *place = Some(message);
        }
    }

    /// Returns how many more messages fit into the connection to the client.
    pub fn room(&self) -> usize {
        self.line.iter().filter(|place| place.is_none()).count()
    }

    pub fn mark(&mut self) {
        self.copies = [None; 2];
        self.pending_writers += 1;
        self.ver += 1;
    }

    pub fn unmark(&mut self) {
        self.pending_writers -= 1;
        self.ver += 1;
    }

    pub fn token(&self) -> Option<u8> {
        (self.pending_writers == 0 && !self.unproven).then_some(self.ver)
    }

    pub fn fill(&mut self, key: usize, value: u8, token: Option<u8>) {
        if token.is_some() && self.token() == token {
            self.copies[key] = Some(value);
        }
    }

    pub fn break_by(&mut self, violation: Violation) {
        self.broken = self.broken.or(Some(violation));
    }
}
