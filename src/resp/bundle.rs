//! What a front keeps of the commands that it hands over to backs.

use std::rc::Rc;

use super::decisions::Decided;
use crate::pg::resp::desk::{Answered, Desk, Free, Handed, Lane, Work};

/// Commands of one client's pipeline that are handed over together.
pub struct Bundle {
    pub decided: Rc<Decided>,
    /// It is a COPY to this cache.
    pub copied_to: Option<Rc<Decided>>,
    pub work: Work,
    pub lane: Lane,
    /// Where its first request begins in the client's input.
    pub from: usize,
    pub commands: u32,
    /// No other command may join it.
    pub is_full: bool,
    /// The requests, where they are not in the client's input: those of a MULTI.
    pub collected: Option<Vec<u8>>,
}

/// A front's side of the desk.
pub struct Counter {
    pub desk: Desk,
    free: Vec<Free>,
    /// What was handed over since backs were last told: to the quick lane, to the slow one.
    pub untold: (bool, bool),
}

impl Counter {
    pub fn new(desk: Desk, front: usize) -> Counter {
        Counter {
            desk,
            free: desk.begin_front(front),
            untold: (false, false),
        }
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Hands over; the number of the place. None: there is no room now.
    pub fn hand(&mut self, handed: Handed, lane: Lane, requests: &[u8]) -> Option<u32> {
        let place = self.free.pop()?;
        if !self.desk.write(&place, handed, requests) {
            self.free.push(place);
            return None;
        }
        let number = Desk::number(&place);
        self.desk.hand(place, lane);
        match lane {
            Lane::Quick => self.untold.0 = true,
            Lane::Slow => self.untold.1 = true,
        }
        Some(number)
    }

    /// A reply was sent, or nobody wants it.
    pub fn give_back(&mut self, place: Answered) {
        self.free.push(self.desk.free(place));
    }
}
