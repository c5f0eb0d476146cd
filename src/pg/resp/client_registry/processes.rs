//! Fronts: which are there and what they serve, how many clients each has and which one a place is for, how many
//! clients of all fronts are one role's.

use std::array;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use pgrx::pg_sys::Oid;

use crate::pg::resp::client_registry::claims::Claimed;
use crate::pg::resp::client_registry::layout::{Board, Figures, Front};
use crate::pg::resp::client_registry::place::{Place, high, pair};
use crate::pg::session::clock;
use crate::pg::worker::background;

/// Clients that were let in, of all fronts.
#[derive(Clone, Copy, Default)]
pub struct LoggedIn {
    pub of_role: usize,
    pub all: usize,
}

impl Board {
    /// Says which database is served.
    pub fn set_database(&self, database: Oid) {
        self.head.database.store(database.to_u32(), Relaxed);
    }

    /// The database that is served.
    pub fn database(&self) -> Oid {
        Oid::from_u32(self.head.database.load(Relaxed))
    }

    /// This process is the front of this number. What its predecessor has shown is taken away; gives
    /// what that has counted.
    pub fn begin_front(&self, number: usize) -> Figures {
        for place in self.places {
            if place.front.load(Acquire) == number as u32 + 1 {
                self.clear(place);
            }
        }
        let front = self.front(number);
        front.room.store(0, Relaxed);
        front.clients.store(0, Relaxed);
        front.tracking.store(0, Relaxed);
        front.tracked_keys.store(0, Relaxed);
        front.memory.store(0, Relaxed);
        front.largest_client.store(0, Relaxed);
        front.ends.store(0, Relaxed);
        front.pid.store(background::own_pid(), SeqCst);
        self.head
            .reset
            .compare_exchange(0, clock::now(), Relaxed, Relaxed)
            .ok();
        array::from_fn(|at| front.figures[at].load(Relaxed))
    }

    /// The front of this number ends, and its clients with it.
    pub fn end_front(&self, number: usize) {
        let front = self.front(number);
        front.pid.store(0, SeqCst);
        front.room.store(0, Relaxed);
        front.clients.store(0, Relaxed);
        front.tracking.store(0, Relaxed);
        front.tracked_keys.store(0, Relaxed);
        front.memory.store(0, Relaxed);
        front.largest_client.store(0, Relaxed);
    }

    /// Says how much memory the clients of a front take, and the largest of them.
    #[inline]
    pub fn set_memory(&self, number: usize, all: usize, largest: usize) {
        let front = self.front(number);
        front.memory.store(all as u64, Relaxed);
        front.largest_client.store(largest as u64, Relaxed);
    }

    /// Bytes of memory that the clients of all fronts take.
    pub fn clients_memory(&self) -> usize {
        let memory = |front: &Front| front.memory.load(Relaxed);
        self.head.fronts.iter().map(memory).sum::<u64>() as usize
    }

    /// Another front that has a larger client than this.
    pub fn larger_front(&self, number: usize, size: usize) -> Option<usize> {
        let fronts = self.head.fronts.iter().enumerate();
        let sizes = fronts.map(|(at, front)| (front.largest_client.load(Relaxed) as usize, at));
        let (largest, at) = sizes.filter(|(_, at)| *at != number).max()?;
        (largest > size).then_some(at)
    }

    /// Wakes one front.
    pub fn wake_front(&self, number: usize) {
        let pid = self.front(number).pid.load(SeqCst);
        if pid != 0 {
            background::wake(pid);
        }
    }

    /// Wakes all fronts.
    pub fn wake_fronts(&self) {
        let pids = self.head.fronts.iter().map(|front| front.pid.load(SeqCst));
        pids.filter(|&pid| pid != 0).for_each(background::wake);
    }

    /// Says how many clients a front takes.
    pub fn set_room(&self, number: usize, room: usize) {
        self.front(number).room.store(room as u64, SeqCst);
    }

    /// How many clients a front has, those on their way to it among them; None: it takes no more.
    pub fn load(&self, number: usize) -> Option<u64> {
        let front = self.front(number);
        let claimed = front.claimed.load(Relaxed);
        let lives = front.pid.load(Acquire) != 0;
        (lives && claimed < front.room.load(Acquire)).then_some(claimed)
    }

    /// How many clients there are, those on their way to a front among them.
    pub fn claimed(&self) -> u64 {
        let claimed = |front: &Front| front.claimed.load(Relaxed);
        self.head.fronts.iter().map(claimed).sum()
    }

    /// The process of a front; 0: there is none.
    pub fn pid(&self, number: usize) -> u32 {
        self.front(number).pid.load(Acquire)
    }

    /// A place as a number, to be told to the front that it was claimed for.
    pub fn number_of(&self, claimed: &Claimed) -> u64 {
        claimed.0 as u64
    }

    /// The place of this number, if it was claimed for this front and nobody is there.
    pub fn take_over(&self, number: usize, place: u64) -> Option<Claimed> {
        let at = usize::try_from(place).ok()?;
        let own = number as u32 + 1;
        let place = self.places.get(at)?;
        (place.front.load(Acquire) == own && place.id() == 0).then_some(Claimed(at))
    }

    /// Notes whom a client is let in as; 0: nobody. For who counts.
    pub fn set_role(&self, claimed: &Claimed, role: u32) {
        if let Some(place) = self.places.get(claimed.0) {
            // No version is needed for a word of its own.
            let database = high(place.words[1].load(Relaxed));
            place.words[1].store(pair(role, database), SeqCst);
        }
    }

    /// How many clients others have let in, or are letting in, beside the one at this place: all, and as
    /// this role. Two that come at the same moment see each other, and both may be refused, as with
    /// sessions.
    pub fn logged_in(&self, beside: &Claimed, role: u32) -> LoggedIn {
        let mut count = LoggedIn::default();
        let others =
            |(at, place): &(usize, &Place)| *at != beside.0 && place.front.load(Acquire) != 0;
        for (_, place) in self.used().iter().enumerate().filter(others) {
            let other = place.words[1].load(SeqCst) as u32;
            count.all += usize::from(other != 0);
            count.of_role += usize::from(other == role);
        }
        count
    }
}
