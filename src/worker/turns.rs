//! Whose turn it is: the caches that one visit sweeps share its time.
//!
//! They are swept step by step in turn: who has used least time is next, whatever came of its steps (rows that went, an
//! error, a lock waited for in vain, a VACUUM). One of whose steps took over a second is slow until a whole sweep
//! of it had none such: it comes behind all others, and behind those slow ones that have waited longer. While
//! others have work, all slow ones rest for as long as the last such step took. That stands on the board, so it
//! holds over visits. So nobody waits for more than one long step at a time, and no more than half of the time
//! goes into such steps.

use super::job::Job;

/// The sweeps that have not ended.
#[derive(Default)]
pub struct Turns {
    jobs: Vec<Job>,
    /// More than one cache had work when the round began.
    shared: bool,
}

impl Turns {
    /// A round begins: what was used counts no more, and others have become due.
    pub fn begin_round(&mut self, due: impl Iterator<Item = Job>) {
        self.jobs.iter_mut().for_each(Job::begin_round);
        for job in due {
            if !self.jobs.iter().any(|known| known.is_of(&job)) {
                self.jobs.push(job);
            }
        }
        self.shared = self.jobs.len() > 1;
    }

    /// Takes out who is next; None when nobody is. `rests`: whether slow ones rest at this moment.
    pub fn next(&mut self, rests: impl FnOnce() -> bool) -> Option<Job> {
        let least = |&place: &usize| self.jobs[place].rank();
        let place = (0..self.jobs.len()).min_by_key(least)?;
        // All others are slow, too; the next visit looks again.
        let waits = self.shared && self.jobs[place].is_slow() && rests();
        (!waits).then(|| self.jobs.remove(place))
    }

    pub fn put_back(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// Whether others wait while one has its turn.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}
