//! The board where there are several fronts: how many clients each has, which front a place is for, how
//! many clients of all fronts are one role's.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::{Board, Claimed, Front, LoggedIn, Place, high, pair};

impl Board {
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
