//! A visit to one database: sweep its caches, vacuum what was emptied, end. One that comes because of an
//! alarm only vacuums.
//!
//! Each step is a transaction of its own that removes at most `pgcache.expire_batch` rows, so no
//! snapshot and no lock is older than that. An error ends the step, is logged once, and puts the cache
//! off; the others are swept as ever. The same becomes of a step that takes too long, in which the launcher ends
//! the worker.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use super::put_off;
use super::vacuum::Vacuums;
use crate::cache::pass::Pass;
use crate::cache::registry::Storage;
use crate::cache::sweep;
use crate::cache::trim::{Spare, Trim};
use crate::cache::upkeep::{self, Due};
use crate::guc;
use crate::pg::board::{Board, Outcome, Record, Visit, board};
use crate::pg::failure::Failure;
use crate::pg::{background, clock, database, lock};

/// A pass that finds little may work for this part of the interval, then goes on at the next visit.
const SHARE: u32 = 5;

/// Whether a cache could be swept, or is locked, or swept by somebody else.
enum Swept {
    Yes,
    No,
}

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
        self.vacuums.answer_alarms();
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

    fn sweep_all(&mut self) {
        let due = match background::in_transaction(upkeep::due) {
            Ok(due) => due,
            Err(failure) => return failure.warn("could not list the caches to sweep".into()),
        };
        let Some(interval) = guc::expire_interval() else {
            return;
        };
        upkeep::expire_memory(self.board, &due.memory, interval / SHARE);
        for table in &due.tables {
            background::reload_if_asked();
            if guc::expire_interval().is_none() {
                return;
            }
            self.sweep_table(table, interval / SHARE);
            self.vacuums.look_at(table);
        }
    }

    /// Sweeps one cache, step by step.
    fn sweep_table(&mut self, due: &Due, share: Duration) {
        let record = self.board.record(due.owner);
        background::show(Some(&format!("sweeping {}", due.name)));
        match self.sweep_steps(due, record, share) {
            Ok(Swept::Yes) => record.failures.store(0, Relaxed),
            Ok(Swept::No) => {}
            Err(failure) if failure.cancelled || failure.locked => {}
            Err(failure) => put_off(due, record, &failure),
        }
    }

    /// One transaction of a sweep, which the launcher sees begin and end. Alarms do not wait for the last.
    fn step<R>(&mut self, due: &Due, work: impl FnOnce() -> R) -> Result<R, Failure> {
        self.note.owner.store(due.owner, Relaxed);
        self.note.step_began.store(clock::now(), Release);
        let result = background::in_transaction(work);
        self.note.step_began.store(0, Relaxed);
        self.vacuums.answer_alarms();
        result
    }

    /// A pass and a trimming, and both again while writers are so fast that the limit does not hold yet.
    fn sweep_steps(
        &mut self,
        due: &Due,
        record: &Record,
        share: Duration,
    ) -> Result<Swept, Failure> {
        let began = Instant::now();
        loop {
            let Some(pass) = self.pass_steps(due, record, share)? else {
                return Ok(Swept::No);
            };
            let again = pass.is_complete() && self.trim_steps(due, &pass)?;
            if !again || began.elapsed() > share * SHARE {
                return Ok(Swept::Yes);
            }
        }
    }

    /// A pass, as far as it is worth its time; None when the cache cannot be swept.
    fn pass_steps(
        &mut self,
        due: &Due,
        record: &Record,
        share: Duration,
    ) -> Result<Option<Pass>, Failure> {
        let mut pass = None;
        let mut fruitless = Duration::ZERO;
        let mut bounded = true;
        loop {
            let began = Instant::now();
            let went_on = self.step(due, || {
                let open = sweep::open(due.relation)?;
                if open.cache.storage == Storage::Memory || !lock::try_sweep(due.relation) {
                    return None;
                }
                bounded = open.cache.settings.max_entries.is_none();
                let pass = pass.get_or_insert_with(|| Pass::begin(&open.cache, Some(record)));
                let step =
                    (!pass.is_complete()).then(|| pass.step(&open.cache, guc::expire_batch()));
                pass.note(record);
                // Under the lock on the table: who changes its settings afterwards has the last word.
                if pass.is_complete() {
                    record.changes.store(due.changes, Relaxed);
                }
                Some((step.is_some_and(|step| step.worthwhile), pass.is_complete()))
            })?;
            let Some((worthwhile, complete)) = went_on else {
                return Ok(None);
            };
            if !worthwhile {
                fruitless += began.elapsed();
            }
            if complete || (bounded && fruitless > share) {
                return Ok(pass);
            }
        }
    }

    /// Brings a cache down to its `max_entries` after a complete pass; whether it may have grown beyond it
    /// again meanwhile.
    fn trim_steps(&mut self, due: &Due, pass: &Pass) -> Result<bool, Failure> {
        let mut excess = None;
        let mut again = false;
        for spare in [Spare::Used, Spare::None] {
            let mut trim: Option<Trim> = None;
            loop {
                let done = self.step(due, || {
                    let open = sweep::open(due.relation)?;
                    if !lock::try_sweep(due.relation) {
                        return None;
                    }
                    let excess = *excess.get_or_insert_with(|| sweep::excess(&open.cache, pass));
                    again |= excess > sweep::tolerance(&open.cache);
                    let trim = trim.get_or_insert_with(|| Trim::begin(&open.cache, excess));
                    if !trim.is_complete() {
                        trim.step(&open.cache, spare, guc::expire_batch());
                    }
                    Some(trim.is_complete())
                })?;
                if done.unwrap_or(true) {
                    break;
                }
            }
            excess = trim.map(|trim| trim.excess());
        }
        // Where rows cannot go, a second time would be no better.
        Ok(again && excess.is_some_and(|left| left <= 0))
    }
}
