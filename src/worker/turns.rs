//! Shares the time of a visit among the caches that it sweeps.
//!
//! After each step the cache that has used the least time is next, whether its steps removed rows, failed, missed a
//! lock, or vacuumed. A cache becomes slow with a step of more than a second, and stays slow until a whole sweep of it
//! has no long step. Slow caches come after all other caches; among the slow caches, the one that has waited longest is
//! first. While other caches have work, all slow caches rest for as long as the last long step took. The rest is kept
//! in shared memory, so it outlasts a visit. No cache waits for more than one long step at a time, and at most half of
//! the time is spent in long steps.
//!
//! The same rule holds for owners. After a recent long step of one of an owner's caches, all caches of that owner rest
//! together, and come after the caches of owners without a long step while those owners' caches have work. Otherwise an
//! owner could keep other owners waiting with many caches, each of which is slow for the first time.

use std::collections::HashMap;

use pgrx::pg_sys::Oid;

use super::sweep_job::Job;

/// The time of the last long step of each owner with a recent long step.
pub type SlowOwners = HashMap<Oid, u32>;

/// The sweeps that have not ended yet.
#[derive(Default)]
pub struct Turns {
    jobs: Vec<Job>,
    /// Whether more than one cache had work when the round began.
    shared: bool,
    /// Whether the caches with work had more than one owner.
    owners_share: bool,
}

impl Turns {
    /// Begins a round: the time that earlier rounds have used no longer counts. Adds the caches that have become due.
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

    /// Takes out the next sweep. Returns None if no sweep may run now. `rests` returns whether slow caches must rest.
    pub fn next(&mut self, slow: &SlowOwners, rests: impl FnOnce() -> bool) -> Option<Job> {
        let of_owner = |job: &Job| match self.owners_share {
            true => slow.get(&job.due.owner).copied().unwrap_or(0),
            false => 0,
        };
        let least = |&place: &usize| self.jobs[place].rank(of_owner(&self.jobs[place]));
        let place = (0..self.jobs.len()).min_by_key(least)?;
        let next = &self.jobs[place];
        // If the next cache is slow, all other caches are slow, too, and the next visit continues with them.
        let is_slow = next.is_slow() || of_owner(next) != 0;
        let waits = self.shared && is_slow && rests();
        (!waits).then(|| self.jobs.remove(place))
    }

    /// Puts back a sweep after its turn, if it has not ended.
    pub fn put_back(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// Returns whether no other cache waits for a turn.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}
