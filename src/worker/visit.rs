//! A visit to one database: sweep its caches, vacuum what was emptied, end. One that comes because of an
//! alarm only vacuums.
//!
//! Each step is a transaction of its own that removes at most `pgcache.expire_batch` rows, so no
//! snapshot and no lock is older than that. Caches take turns by steps (`turns`). An error ends a cache's sweep, is
//! logged once, and puts the cache off; the others are swept as ever. The same becomes of a step that takes too
//! long, in which the launcher ends the worker.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use super::job::{Did, Job, SHARE};
use super::turns::Turns;
use super::vacuum::Vacuums;
use super::{pace, put_off};
use crate::cache::expiry::upkeep::{self, Due};
use crate::guc;
use crate::pg::catalog::database;
use crate::pg::session::failure::Failure;
use crate::pg::session::{self, clock};
use crate::pg::shmem::worker_state::{Board, Outcome, Visit, board};
use crate::pg::worker::background;

/// A round is not shorter, however short the interval: it begins with a look at all caches.
const SHORTEST_ROUND: Duration = Duration::from_secs(1);

/// What the steps of a visit share.
struct Work {
    board: Board,
    note: &'static Visit,
    vacuums: Vacuums,
}

/// The life of a visiting worker.
pub fn run(place: usize) {
    let Some(board) = board() else {
        background::end(0);
    };
    let note = board.visit(place);
    background::become_worker(Oid::from_u32(note.database.load(Relaxed)));
    background::show(Some("looking for caches"));
    let has_extension = background::in_transaction(database::has_extension).unwrap_or(false);
    note.tell(match has_extension {
        true => Outcome::Swept,
        false => Outcome::NoExtension,
    });
    if has_extension {
        note.begin();
        let mut work = Work {
            board,
            note,
            vacuums: Vacuums::new(board),
        };
        work.run();
        note.end();
    }
    background::end(0);
}

impl Work {
    /// Goes on, interval after interval, while tables die quickly and no other database needs its place:
    /// while the next worker starts nobody vacuums.
    fn run(&mut self) {
        let mut until = Instant::now() + self.note.longest();
        self.vacuums.answer_alarms(false);
        let mut sweeps = !self.note.alarmed.load(Relaxed);
        loop {
            if sweeps {
                self.sweep_all();
            }
            self.vacuums.stay(until);
            let Some(interval) = guc::expire_interval() else {
                return;
            };
            if self.vacuums.have_come_to_rest() || self.board.is_awaited() {
                return;
            }
            sweeps = true;
            until = Instant::now() + interval;
        }
    }

    /// Sweeps what is due, in turns. Who takes longer than an interval does not keep the others waiting that have
    /// become due meanwhile.
    fn sweep_all(&mut self) {
        let mut turns = Turns::default();
        let mut ends = None;
        loop {
            background::reload_if_asked();
            let Some(interval) = guc::expire_interval() else {
                return;
            };
            if ends.is_none_or(|ends| Instant::now() >= ends) {
                let others_wait = ends.is_some() && self.board.is_awaited();
                if others_wait || !self.begin_round(&mut turns, interval) {
                    return;
                }
                ends = Some(Instant::now() + interval.max(SHORTEST_ROUND));
            }
            let Some(mut job) = turns.next(|| self.slow_ones_rest()) else {
                return;
            };
            match job.is_swept() {
                true => self.vacuum(job),
                false => {
                    self.sweep(&mut job, interval / SHARE);
                    turns.put_back(job);
                }
            }
            self.vacuums.answer_alarms(!turns.is_empty());
        }
    }

    /// False when what is due cannot be found out.
    fn begin_round(&mut self, turns: &mut Turns, interval: Duration) -> bool {
        let due = match background::in_transaction(upkeep::due) {
            Ok(due) => due,
            Err(failure) => {
                failure.warn("could not list the caches to sweep".into());
                return false;
            }
        };
        upkeep::expire_memory(self.board, &due.memory, interval / SHARE);
        let board = self.board;
        let job = |due: Due| {
            let record = board.record(due.owner);
            Job::new(due, record)
        };
        turns.begin_round(due.tables.into_iter().map(job));
        true
    }

    /// Whether a long step has ended so lately that it is the others' time.
    fn slow_ones_rest(&self) -> bool {
        let now = clock::now();
        self.board
            .of_database(session::database())
            .any(|(_, record)| record.rests_for(now).is_some())
    }

    /// One step, whose time the cache is charged whatever comes of it.
    fn sweep(&mut self, job: &mut Job, share: Duration) {
        background::show(Some(&format!("sweeping {}", job.due.name)));
        let began = Instant::now();
        let done = self.step(job);
        let took = began.elapsed();
        job.charge(took);
        match done {
            Ok(did) => job.go_on(did, took, share),
            Err(failure) => {
                if failure.cancelled {
                    pace::learn(job.record, took, false);
                } else if !failure.locked {
                    put_off(&job.due, job.record, &failure);
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

    /// One transaction of a sweep, which the launcher sees begin and end.
    fn step(&mut self, job: &mut Job) -> Result<Option<Did>, Failure> {
        self.note.owner.store(job.due.owner, Relaxed);
        self.note.step_began.store(clock::now(), Release);
        let result = background::in_transaction(|| job.step());
        self.note.step_began.store(0, Relaxed);
        result
    }
}
