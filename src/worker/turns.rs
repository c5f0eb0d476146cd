//! Whose turn it is: the caches that one visit sweeps share its time.
//!
//! Step by step, the cache that has used the least time is next, whatever its steps did: removed
//! rows, failed, waited for a lock in vain, vacuumed. A cache is slow from a step of more than a
//! second until a whole sweep of it had no such step. Slow caches come behind all others, those
//! that have waited longest first. While other caches have work, all slow ones rest for as long as
//! the last long step took. The rest is kept in shared memory, so it outlasts a visit. So no cache
//! waits for more than one long step at a time, and at most half of the time goes into long steps.
//!
//! So it is with owners: as long as others' caches have work, all caches of one of whose caches a
//! step was long lately come behind them, and rest with it. Else somebody could keep the others
//! waiting by many caches each of which is slow for the first time.

use std::collections::HashMap;

use pgrx::pg_sys::Oid;

use super::job::Job;

/// When the last long step was of a cache of each owner who had one lately.
pub type SlowOwners = HashMap<Oid, u32>;

/// The sweeps that have not ended.
#[derive(Default)]
pub struct Turns {
    jobs: Vec<Job>,
    /// More than one cache had work when the round began.
    shared: bool,
    /// They were of more than one owner.
    owners_share: bool,
}

impl Turns {
    /// A round begins: the time used so far no longer counts, and these caches have become due.
    pub fn begin_round(&mut self, due: impl Iterator<Item = Job>) {
        self.jobs.iter_mut().for_each(Job::begin_round);
        for job in due {
            if !self.jobs.iter().any(|known| known.is_of(&job)) {
                self.jobs.push(job);
            }
        }
        let mut owners = self.jobs.iter().map(|job| job.due.owner);
        let first = owners.next();
        self.owners_share = owners.any(|owner| Some(owner) != first);
        self.shared = self.jobs.len() > 1;
    }

    /// Takes out the sweep that is next; None when there is none. `rests` says whether slow ones
    /// rest now.
    pub fn next(&mut self, slow: &SlowOwners, rests: impl FnOnce() -> bool) -> Option<Job> {
        let of_owner = |job: &Job| match self.owners_share {
            true => slow.get(&job.due.owner).copied().unwrap_or(0),
            false => 0,
        };
        let least = |&place: &usize| self.jobs[place].rank(of_owner(&self.jobs[place]));
        let place = (0..self.jobs.len()).min_by_key(least)?;
        let next = &self.jobs[place];
        // Then all others are slow, too, and the next visit goes on with them.
        let is_slow = next.is_slow() || of_owner(next) != 0;
        let waits = self.shared && is_slow && rests();
        (!waits).then(|| self.jobs.remove(place))
    }

    /// Puts a sweep back that has had its turn and has not ended.
    pub fn put_back(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// Whether no other cache waits for its turn.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}
