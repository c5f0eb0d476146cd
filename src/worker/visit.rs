//! A visit to one database: sweep its caches, vacuum what was emptied, end.
//!
//! Each step is a transaction of its own that removes at most `pgcache.expire_batch` rows, so no
//! snapshot and no lock is older than that. An error ends the step, is logged once, and puts the cache
//! off; the others are swept as ever. The same becomes of a step that takes too long, in which the launcher ends
//! the worker.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use crate::cache::pass::Pass;
use crate::cache::registry::Storage;
use crate::cache::trim::{Spare, Trim};
use crate::cache::upkeep::{self, Due};
use crate::cache::{space, sweep};
use crate::guc;
use crate::pg::board::{Board, Outcome, Record, Visit, board};
use crate::pg::failure::Failure;
use crate::pg::{background, clock, database, lock, storage};

/// A pass that finds little may work for this part of the interval, then goes on at the next visit.
const SHARE: u32 = 5;
/// Between two looks at tables that die quickly.
const PAUSE: Duration = Duration::from_secs(1);

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
        sweep_all(board, note);
    }
    background::end(0);
}

fn sweep_all(board: Board, note: &Visit) {
    let began = Instant::now();
    let due = match background::in_transaction(upkeep::due) {
        Ok(due) => due,
        Err(failure) => return failure.warn("could not list the caches to sweep".into()),
    };
    let Some(interval) = guc::expire_interval() else {
        return;
    };
    upkeep::expire_memory(board, &due.memory, interval / SHARE);
    let mut busy = Vec::new();
    for table in &due.tables {
        background::reload_if_asked();
        if guc::expire_interval().is_none() {
            return;
        }
        sweep_table(board, note, table, interval / SHARE);
        if vacuum(board, table) {
            busy.push(table);
        }
    }
    // Tables that die quickly are looked at until the next sweep, or until they come to rest.
    while !busy.is_empty() && began.elapsed() < interval {
        background::show(None);
        background::sleep(Some(PAUSE));
        background::reload_if_asked();
        busy.retain(|table| vacuum(board, table));
    }
}

/// Sweeps one cache, step by step.
fn sweep_table(board: Board, note: &Visit, due: &Due, share: Duration) {
    let record = board.record(due.owner);
    background::show(Some(&format!("sweeping {}", due.name)));
    match sweep_steps(due, record, note, share) {
        Ok(Swept::Yes) => record.failures.store(0, Relaxed),
        Ok(Swept::No) => {}
        Err(failure) if failure.cancelled || failure.locked => {}
        Err(failure) => put_off(due, record, &failure),
    }
}

/// One transaction of a sweep, which the launcher sees begin and end.
fn step<R>(note: &Visit, due: &Due, work: impl FnOnce() -> R) -> Result<R, Failure> {
    note.owner.store(due.owner, Relaxed);
    note.step_began.store(clock::now(), Release);
    let result = background::in_transaction(work);
    note.step_began.store(0, Relaxed);
    result
}

/// Whether a cache could be swept, or is locked, or swept by somebody else.
enum Swept {
    Yes,
    No,
}

/// A pass and a trimming, and both again while writers are so fast that the limit does not hold yet.
fn sweep_steps(
    due: &Due,
    record: &Record,
    note: &Visit,
    share: Duration,
) -> Result<Swept, Failure> {
    let began = Instant::now();
    loop {
        let Some(pass) = pass_steps(due, record, note, share)? else {
            return Ok(Swept::No);
        };
        let again = pass.is_complete() && trim_steps(due, note, &pass)?;
        if !again || began.elapsed() > share * SHARE {
            return Ok(Swept::Yes);
        }
    }
}

/// A pass, as far as it is worth its time; None when the cache cannot be swept.
fn pass_steps(
    due: &Due,
    record: &Record,
    note: &Visit,
    share: Duration,
) -> Result<Option<Pass>, Failure> {
    let mut pass = None;
    let mut fruitless = Duration::ZERO;
    let mut bounded = true;
    loop {
        let began = Instant::now();
        let went_on = step(note, due, || {
            let open = sweep::open(due.relation)?;
            if open.cache.storage == Storage::Memory || !lock::try_sweep(due.relation) {
                return None;
            }
            bounded = open.cache.settings.max_entries.is_none();
            let pass = pass.get_or_insert_with(|| Pass::begin(&open.cache, Some(record)));
            let step = (!pass.is_complete()).then(|| pass.step(&open.cache, guc::expire_batch()));
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
fn trim_steps(due: &Due, note: &Visit, pass: &Pass) -> Result<bool, Failure> {
    let mut excess = None;
    let mut again = false;
    for spare in [Spare::Used, Spare::None] {
        let mut trim: Option<Trim> = None;
        loop {
            let done = step(note, due, || {
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

/// Vacuums a cache's tables where it is worth it; whether it was.
fn vacuum(board: Board, due: &Due) -> bool {
    let record = board.record(due.owner);
    let worth = background::in_transaction(|| space::worth_vacuum(due.relation, record));
    let Ok(worth) = worth else {
        return false;
    };
    for table in &worth {
        background::show(Some(&format!("vacuuming {}", due.name)));
        match storage::vacuum(table.table) {
            Ok(()) => {}
            Err(failure) if failure.cancelled || failure.locked => return false,
            Err(failure) => {
                put_off(due, record, &failure);
                return false;
            }
        }
        if background::in_transaction(|| space::note(table, record)).is_err() {
            return false;
        }
    }
    !worth.is_empty()
}

/// Puts a failing cache off, and says so the first time.
fn put_off(due: &Due, record: &Record, failure: &Failure) {
    if upkeep::put_off(record) == 1 {
        failure.warn(sweep::could_not_sweep(&due.name));
    }
}
