//! The slow lane: runs one job at a time, which may wait.

use std::cell::Cell;
use std::time::Duration;

use crate::pg::resp::work_queue::{Handed, Lane, Taken};
use crate::pg::session::clock;
use crate::pg::session::failure::Failure;
use crate::pg::worker::as_role::Terms;
use crate::pg::worker::background;
use crate::resp::executor::work::job::{Job, LONGEST_FAILURE};
use crate::resp::executor::work::{At, WorkRunner};

/// The time for which a job waits for a lock before it gives way to other jobs: `SHORT_SLICE` in an executor that also
/// owns the quick lane; in other executors `SLICE` while other work waits, and `LONG_SLICE` otherwise.
const SLICE: Duration = Duration::from_millis(100);
const SHORT_SLICE: Duration = Duration::from_millis(5);
const LONG_SLICE: Duration = Duration::from_millis(300);

impl WorkRunner {
    /// Takes the next job of the slow lane.
    pub fn next_slow(&self) -> Option<Taken> {
        self.work_queue.places.take(Lane::Slow, self.number)
    }

    /// Runs a job of the slow lane.
    pub fn slow(&mut self, taken: Taken) {
        self.requests.clear();
        let mut jobs = Vec::new();
        self.add(taken, &mut jobs);
        self.put_aside(&mut jobs, Lane::Slow);
        for job in jobs {
            self.alone(job);
        }
        self.tell();
    }

    /// Runs one job, which may wait. A job that waits too long gives way to other jobs, unless it would then run
    /// user-defined code twice.
    fn alone(&mut self, job: Job) {
        let settings = self.roles.settings(job.handed.role, job.handed.alone);
        let slice = match () {
            // This executor also owns the quick lane.
            () if self.work_queue.processes.has_quick(self.number) => SHORT_SLICE,
            () if self.has_requests() || self.work_queue.places.waiting(Lane::Slow) > 0 => SLICE,
            () => LONG_SLICE,
        };
        let alone = job.handed.alone;
        let terms = Terms {
            role: job.handed.role,
            settings: &settings,
            patience: (!alone).then_some(slice),
            lock_timeout: Cell::new(0),
            is_timed: true,
        };
        let mut jobs = [job];
        let (at, longest) = (Cell::new(At::Commit), self.work_queue.batches.longest());
        let done = self.transaction(&terms, &mut jobs, &at, longest);
        let [job] = jobs;
        match done {
            // The table has received user-defined code, so the job must run under other settings.
            Ok(0) => self.put_back(job, Lane::Slow),
            Err(_) if job.handed.alone && !alone => self.put_back(job, Lane::Slow),
            Ok(_) => self.answer(job.taken, job.replies),
            // User-defined code is not run twice.
            Err(_) if background::is_end_requested() && !job.handed.alone => {
                self.put_back(job, Lane::Slow);
            }
            Err(failure) => {
                let waited = (clock::now() - job.handed.since) / 1000;
                let most = i64::from(terms.lock_timeout.get());
                let is_over = most > 0 && waited >= most;
                if failure.locked && !job.handed.alone && !is_over {
                    self.put_back(job, Lane::Slow);
                } else if job.is_pipeline() {
                    self.one_by_one(job);
                } else {
                    self.fail(job, &failure);
                }
            }
        }
    }

    /// Runs the commands of a pipeline whose common transaction failed, each in a separate transaction. All replies are
    /// sent together. If a command's reply leaves no room for the other replies, the command fails and changes nothing.
    fn one_by_one(&mut self, job: Job) {
        let mut left = job.cuts.len();
        let mut replies = Vec::new();
        for number in job.cuts.clone() {
            left -= 1;
            let room = (self.work_queue.batches.longest() - replies.len())
                .saturating_sub(left * LONGEST_FAILURE);
            let mut part = [Job {
                taken: None,
                handed: Handed {
                    commands: 1,
                    ..job.handed
                },
                waits: job.waits,
                bytes: job.bytes.clone(),
                cuts: number..number + 1,
                replies: 0..0,
            }];
            let mut done = self.part(&mut part, room);
            let [now] = &part;
            if now.handed.alone && !job.handed.alone {
                done = self.part(&mut part, room);
            }
            if let Err(failure) = done {
                let [part] = part;
                self.write_failed(&part, &failure);
            }
            replies.extend_from_slice(self.tools.replies.as_bytes());
        }
        self.answer_with(job.taken, &replies);
    }

    /// Runs one command of a pipeline, with the settings for user-defined code if `handed.alone` is set.
    fn part(&mut self, part: &mut [Job; 1], room: usize) -> Result<usize, Failure> {
        let [Job { handed, .. }] = part;
        let settings = self.roles.settings(handed.role, handed.alone);
        let terms = Terms {
            role: handed.role,
            settings: &settings,
            patience: None,
            lock_timeout: Cell::new(0),
            is_timed: true,
        };
        self.transaction(&terms, part, &Cell::new(At::Commit), room)
    }
}
