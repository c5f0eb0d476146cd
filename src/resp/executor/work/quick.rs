//! The quick lane: runs the commands of many clients in one transaction that does not wait.

use std::cell::Cell;

use pgrx::pg_sys::Oid;

use crate::pg::resp::work_queue::Lane;
use crate::pg::session::failure::Failure;
use crate::pg::worker::as_role::Terms;
use crate::pg::worker::background;
use crate::resp::executor::work::job::Job;
use crate::resp::executor::work::{At, PATIENCE, WorkRunner};

/// The maximum number of commands that are taken together, and the number of bytes of requests after which no more are
/// taken.
const COMMANDS: u32 = 256;
const BYTES: usize = 1 << 20;
/// The number of errors after which the remaining jobs run one at a time.
const ERRORS: u32 = 4;

impl WorkRunner {
    /// Runs the jobs of the quick lane. Returns whether there were any.
    pub fn quick(&mut self) -> bool {
        self.requests.clear();
        let mut jobs = Vec::new();
        let mut commands = 0;
        while commands < COMMANDS
            && self.requests.held() < BYTES
            && let Some(taken) = self.work_queue.places.take(Lane::Quick, self.number)
        {
            commands += self.add(taken, &mut jobs);
        }
        if jobs.is_empty() {
            self.tell();
            return commands > 0;
        }
        self.put_aside(&mut jobs, Lane::Quick);
        let requests = &self.requests;
        jobs.sort_by(|one, other| {
            let rank = |job: &Job| {
                (
                    job.waits, // jobs that may wait for a standby come last, so that the rest is answered before
                    job.handed.role.to_u32(),
                    job.handed.work,
                    job.handed.relation.to_u32(),
                )
            };
            rank(one)
                .cmp(&rank(other))
                .then_with(|| requests.key(one).cmp(requests.key(other)))
        });
        while let Some(first) = jobs.first() {
            let (waits, role) = (first.waits, first.handed.role);
            let other = |job: &Job| (job.waits, job.handed.role) != (waits, role);
            let end = jobs.iter().position(other);
            let rest = jobs.split_off(end.unwrap_or(jobs.len()));
            self.together(role, jobs);
            jobs = rest;
        }
        true
    }

    /// Runs jobs of one role in as few transactions as possible.
    fn together(&mut self, role: Oid, mut jobs: Vec<Job>) {
        let Some(settings) = self.roles.settings_within(PATIENCE, role) else {
            jobs.into_iter()
                .for_each(|job| self.put_back(job, Lane::Slow));
            return;
        };
        let mut failures = 0;
        while !jobs.is_empty() {
            let alone = |job: &mut Job| job.handed.alone;
            for job in jobs.extract_if(.., alone) {
                self.put_back(job, Lane::Slow);
            }
            let most: usize = match failures < ERRORS {
                true => jobs.len(),
                false => 1,
            };
            let terms = Terms {
                role,
                settings: &settings,
                patience: Some(PATIENCE),
                lock_timeout: Cell::new(0),
                is_timed: most == 1,
            };
            let at = Cell::new(At::Commit);
            let peers = jobs.get_mut(..most).unwrap_or_default();
            match self.transaction(&terms, peers, &at, self.work_queue.batches.longest()) {
                Ok(done) => {
                    let rest = jobs.split_off(done);
                    jobs.into_iter()
                        .for_each(|job| self.answer(job.taken, job.replies));
                    jobs = rest;
                }
                Err(failure) => {
                    failures += if failure.cancelled { ERRORS } else { 1 };
                    jobs = self.without_the_guilty(jobs, most, at.get(), &failure);
                }
            }
            // The commit of the next transaction may wait.
            self.tell();
        }
    }

    /// Returns the jobs to run again after a transaction of the first `ran` jobs was rolled back: all but the job that
    /// raised the error.
    fn without_the_guilty(
        &mut self,
        mut jobs: Vec<Job>,
        ran: usize,
        at: At,
        failure: &Failure,
    ) -> Vec<Job> {
        let end = |runner: &mut WorkRunner, job: Job| match failure.locked || job.is_pipeline() {
            true => runner.put_back(job, Lane::Slow),
            false => runner.fail(job, failure),
        };
        if background::is_end_requested() {
            // The transaction changed nothing, so the jobs go back to the queue and the successor of this process runs
            // them.
            jobs.into_iter()
                .for_each(|job| self.put_back(job, Lane::Quick));
            return Vec::new();
        }
        match at {
            // A cancel or a timeout ended the transaction, and it is unknown whether a job is at fault. All jobs run
            // again, one at a time, because each then has its own timeout.
            _ if failure.cancelled && ran > 1 => {}
            At::Job(number) if number < jobs.len() => end(self, jobs.remove(number)),
            At::Open(number) if number < jobs.len() => {
                let relation = jobs.get(number).map(|job| job.handed.relation);
                let its = |job: &Job| Some(job.handed.relation) == relation;
                let (guilty, rest) = jobs.into_iter().partition::<Vec<_>, _>(its);
                guilty.into_iter().for_each(|job| end(self, job));
                return rest;
            }
            // It is unknown which job raised the error, so each one runs alone.
            _ if ran == 1 => end(self, jobs.remove(0)),
            _ => {
                jobs.drain(..)
                    .for_each(|job| self.put_back(job, Lane::Slow));
            }
        }
        jobs
    }
}
