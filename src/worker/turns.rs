//! Shares the time of a visit among the caches that it sweeps.
//!
//! After each step the cache that has used the least time is next, whatever its steps did: remove rows, fail, miss a
//! lock, or vacuum. A cache becomes slow with a step of more than a second, and stays slow until a whole sweep of it
//! has no such step. Slow caches come after all others, the longest waiting first. While other caches have work, all
//! slow ones rest for as long as the last long step took. The rest is kept in shared memory, so it outlasts a visit.
//! So no cache waits for more than one long step at a time, and at most half of the time goes into long steps.
//!
//! The same holds for owners. After a recent long step of one of an owner's caches, all caches of that owner come
//! after those of other owners while these have work, and rest with it. Otherwise an owner could keep other owners
//! waiting with many caches, each of which is slow for the first time.

use std::collections::HashMap;

use pgrx::pg_sys::Oid;

use super::job::Job;

/// The time of the last long step, for each owner with a recent one.
pub type SlowOwners = HashMap<Oid, u32>;

/// The sweeps that have not ended.
#[derive(Default)]
pub struct Turns {
    jobs: Vec<Job>,
    /// Whether more than one cache had work when the round began.
    shared: bool,
    /// Whether these caches had more than one owner.
    owners_share: bool,
}

impl Turns {
    /// Begins a round: the time used so far no longer counts, and these caches have become due.
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

    /// Takes out the next sweep; None if no sweep may run now. `rests` returns whether slow caches rest now.
    pub fn next(&mut self, slow: &SlowOwners, rests: impl FnOnce() -> bool) -> Option<Job> {
        let of_owner = |job: &Job| match self.owners_share {
            true => slow.get(&job.due.owner).copied().unwrap_or(0),
            false => 0,
        };
        let least = |&place: &usize| self.jobs[place].rank(of_owner(&self.jobs[place]));
        let place = (0..self.jobs.len()).min_by_key(least)?;
        let next = &self.jobs[place];
        // If the next one is slow, all others are slow, too, and the next visit continues with them.
        let is_slow = next.is_slow() || of_owner(next) != 0;
        let waits = self.shared && is_slow && rests();
        (!waits).then(|| self.jobs.remove(place))
    }

    /// Puts back a sweep that has had its turn and has not ended.
    pub fn put_back(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// Returns whether no other cache waits for its turn.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}
