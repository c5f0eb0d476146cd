//! A visit of a worker to one database: it sweeps the caches, vacuums their tables, and ends. A visit that answers a
//! writer's request for a VACUUM only vacuums.
//!
//! Each step is a separate transaction that removes at most `pgcache.expire_batch` rows, so no snapshot and no lock
//! lasts longer than a step. Caches take turns step by step (`turns`). An error ends the sweep of a cache, is logged
//! once, and postpones the next sweep of the cache; the sweeps of the other caches continue. A step that takes too long
//! counts as an error, too: the launcher terminates the worker.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use super::pace;
use super::sweep_job::{Job, SHARE};
use super::turns::{SlowOwners, Turns};
use super::vacuum::Vacuums;
use crate::cache::expiry::sweep::Step;
use crate::cache::expiry::upkeep::{self, Due};
use crate::cache::lease::{undo_marks, unverified_after_restart};
use crate::guc;
use crate::pg::catalog::database;
use crate::pg::session::failure::Failure;
use crate::pg::session::{self, clock};
use crate::pg::shmem::worker_state::{Outcome, VisitState, WorkerShmem, worker_shmem};
use crate::pg::worker::{background, connect};

/// The shortest round, however short the interval is, because a round begins by listing all caches.
const SHORTEST_ROUND: Duration = Duration::from_secs(1);

/// The state that the steps of a visit share.
struct Work {
    shmem: WorkerShmem,
    shared: &'static VisitState,
    vacuums: Vacuums,
}

/// Runs a worker that visits one database.
pub fn run(place: usize) {
    let Some(shmem) = worker_shmem() else {
        background::end(0);
    };
    let shared = shmem.visit(place);
    connect::as_worker(Oid::from_u32(shared.database.load(Relaxed)));
    background::show(Some("looking for caches"));
    let has_extension = background::in_transaction(database::has_extension).unwrap_or(false);
    shared.set_outcome(match has_extension {
        true => Outcome::Swept,
        false => Outcome::NoExtension,
    });
    if has_extension {
        shared.begin_answering();
        let mut work = Work {
            shmem,
            shared,
            vacuums: Vacuums::new(shmem),
        };
        work.run();
        shared.end_answering();
    }
    background::end(0);
}

impl Work {
    /// Sweeps and vacuums. Stays for further intervals while rows die quickly and no other database waits for a visit:
    /// between this visit and the next, no rows would be vacuumed.
    fn run(&mut self) {
        let mut until = Instant::now() + self.shared.longest();
        self.vacuums.answer_requests(false);
        let mut sweeps = !self.shared.only_vacuums.load(Relaxed);
        loop {
            if sweeps {
                self.sweep_all();
            }
            self.vacuums.stay(until);
            let Some(interval) = guc::expire_interval() else {
                return;
            };
            if self.vacuums.have_come_to_rest() || self.shmem.is_place_wanted() {
                return;
            }
            sweeps = true;
            until = Instant::now() + interval;
        }
    }

    /// Sweeps the due caches, in turns. A round ends after an interval, so that a long sweep does not delay caches
    /// that become due during it.
    fn sweep_all(&mut self) {
        let mut turns = Turns::default();
        let mut ends = None;
        loop {
            background::reload_if_requested();
            let Some(interval) = guc::expire_interval() else {
                return;
            };
            if ends.is_none_or(|ends| Instant::now() >= ends) {
                let others_wait = ends.is_some() && self.shmem.is_place_wanted();
                if others_wait || !self.begin_round(&mut turns, interval) {
                    return;
                }
                ends = Some(Instant::now() + interval.max(SHORTEST_ROUND));
            }
            let Some(mut job) = turns.next(&self.slow_owners(), || self.slow_ones_rest()) else {
                return;
            };
            match job.is_swept() {
                true => self.vacuum(job),
                false => {
                    self.sweep(&mut job, interval / SHARE);
                    turns.put_back(job);
                }
            }
            self.vacuums.answer_requests(!turns.is_empty());
        }
    }

    /// Adds the due caches. Returns false if the caches cannot be listed.
    fn begin_round(&mut self, turns: &mut Turns, interval: Duration) -> bool {
        let due = match background::in_transaction(|| {
            // Marks of decided transactions are undone here, too, because it is possible that no session reads the keys
            // that these marks block.
            undo_marks::lower_decided();
            unverified_after_restart::prove_all();
            upkeep::due(self.shmem)
        }) {
            Ok(due) => due,
            Err(failure) => {
                failure.warn(
                    "could not list the caches to sweep".into(),
                    "Fix the problem that the detail names; the next visit tries again.",
                );
                return false;
            }
        };
        upkeep::expire_memory(self.shmem, &due.memory, interval / SHARE);
        upkeep::compact_tier(interval / SHARE);
        let shmem = self.shmem;
        let job = |due: Due| {
            let state = shmem.sweep_state(due.cache);
            Job::new(due, state)
        };
        turns.begin_round(due.tables.into_iter().map(job));
        true
    }

    /// Returns the owners of caches with a recent long step, each with the time of its last long step.
    fn slow_owners(&self) -> SlowOwners {
        let now = clock::now();
        let mut slow = SlowOwners::new();
        for (_, state) in self.shmem.of_database(session::database()) {
            let since = state.slow_lately(now);
            if since != 0 {
                let of_owner = slow
                    .entry(Oid::from_u32(state.owner.load(Relaxed)))
                    .or_default();
                *of_owner = since.max(*of_owner);
            }
        }
        slow
    }

    /// Returns whether slow caches still rest after a recent long step, so that only other caches may continue.
    fn slow_ones_rest(&self) -> bool {
        let now = clock::now();
        self.shmem
            .of_database(session::database())
            .any(|(_, state)| state.rests_for(now).is_some())
    }

    /// Runs one step, and charges its time to the cache, whatever the result is.
    fn sweep(&mut self, job: &mut Job, share: Duration) {
        background::show(Some(&format!("sweeping {}", job.due.name)));
        let began = Instant::now();
        let done = self.step(job);
        let took = began.elapsed();
        job.charge(took);
        match done {
            Ok(step) => job.go_on(step, took, share),
            Err(failure) => {
                if failure.cancelled {
                    pace::learn(job.state, took, false);
                } else if !failure.locked {
                    upkeep::put_off_for(&failure, job.state, &job.due.name);
                }
                job.give_up();
            }
        }
    }

    fn vacuum(&mut self, mut job: Job) {
        let began = Instant::now();
        self.vacuums.look_at(&job.due);
        job.charge(began.elapsed());
        job.end();
    }

    /// Runs one step in a transaction. Shows the launcher when the step began and that it has ended.
    fn step(&mut self, job: &mut Job) -> Result<Option<Step>, Failure> {
        self.shared.cache.store(Some(job.due.cache), Relaxed);
        self.shared.step_began.store(clock::now(), Release);
        let result = background::in_transaction(|| job.step());
        self.shared.step_began.store(0, Relaxed);
        result
    }
}
