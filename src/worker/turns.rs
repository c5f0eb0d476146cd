//! Whose turn it is: the caches that one visit sweeps share its time.
//!
//! Step by step, the cache that has used the least time is next, whatever its steps did: removed
//! rows, failed, waited for a lock in vain, vacuumed. A cache is slow from a step of more than a
//! second until a whole sweep of it had no such step. Slow caches come behind all others, those
//! that have waited longest first. While other caches have work, all slow ones rest for as long as
//! the last long step took. The rest is kept in shared memory, so it outlasts a visit. So no cache
//! waits for more than one long step at a time, and at most half of the time goes into long steps.

use super::job::Job;

/// The sweeps that have not ended.
#[derive(Default)]
pub struct Turns {
    jobs: Vec<Job>,
    /// More than one cache had work when the round began.
    shared: bool,
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
        self.shared = self.jobs.len() > 1;
    }

    /// Takes out the sweep that is next; None when there is none. `rests` says whether slow ones
    /// rest now.
    pub fn next(&mut self, rests: impl FnOnce() -> bool) -> Option<Job> {
        let least = |&place: &usize| self.jobs[place].rank();
        let place = (0..self.jobs.len()).min_by_key(least)?;
        // Then all others are slow, too, and the next visit goes on with them.
        let waits = self.shared && self.jobs[place].is_slow() && rests();
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
