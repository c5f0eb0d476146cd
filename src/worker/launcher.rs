//! The launcher: which database is visited when.
//!
//! It reads the list of databases from the catalogs that all share, and learns from the visits which of
//! them have the extension. One that has not is looked at again when an extension was made or updated somewhere,
//! and now and then, because a standby does not see that.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use super::pace;
use crate::cache::expiry::upkeep;
use crate::guc;
use crate::pg::catalog::database;
use crate::pg::session::{self, clock};
use crate::pg::shmem::worker_state::{Board, Outcome, VISITS, board};
use crate::pg::worker::background::{self, Started};

/// Until a database without the extension is looked at again unasked: a look costs a process' start.
const AGAIN: Duration = Duration::from_secs(600);
/// The same on a standby, where CREATE EXTENSION comes from the primary.
const AGAIN_ON_STANDBY: Duration = Duration::from_secs(60);
/// The launcher's shortest sleep: an interval below it counts as this.
const SHORTEST: Duration = Duration::from_millis(100);

/// The same while no worker can be started, which nobody tells when it has changed.
const AGAIN_WITHOUT_WORKERS: Duration = Duration::from_secs(1);

/// The longest step of a sweep. Triggers on a cache are its owner's code: one that never returns would
/// keep all other caches of the database from being swept, and vacuum from its work.
const LONGEST_STEP: Duration = Duration::from_secs(30);

/// Between two visits that come because of an alarm; the first stays while there are more.
const ALARMS_APART: Duration = Duration::from_secs(1);

/// What the launcher knows of a database.
struct Known {
    next: Instant,
    /// Not before this moment because of an alarm.
    next_alarmed: Instant,
    /// The last visit found no extension, and the board's news were these then.
    without: Option<u64>,
}

/// A visit under way.
struct Visit {
    database: Oid,
    news: u64,
    worker: Started,
    /// It took too long, and was told to end.
    overdue: bool,
}

struct Launcher {
    board: Board,
    databases: HashMap<u32, Known>,
    visits: [Option<Visit>; VISITS],
    /// No worker could be started, and the log says so.
    short_of_workers: bool,
}

/// The launcher's life. It ends with the server, or when it is terminated, and is then started again.
pub fn run() {
    let Some(board) = board() else {
        background::end(0);
    };
    board.launch();
    let mut launcher = Launcher {
        board,
        databases: HashMap::new(),
        visits: [const { None }; VISITS],
        short_of_workers: false,
    };
    while !background::asked_to_end() {
        background::reload_if_asked();
        launcher.reap();
        launcher.end_overdue();
        let interval = guc::expire_interval().map(|interval| interval.max(SHORTEST));
        if let Some(interval) = interval {
            launcher.learn();
            launcher.start_due(interval);
        }
        background::sleep(launcher.pause(interval));
    }
    background::end(1);
}

impl Launcher {
    /// Takes note of the visits that have ended.
    fn reap(&mut self) {
        for place in 0..VISITS {
            let ended = |visit: &Visit| visit.worker.has_ended();
            if !self.visits[place].as_ref().is_some_and(ended) {
                continue;
            }
            let Some(visit) = self.visits[place].take() else {
                continue;
            };
            let note = self.board.visit(place);
            note.end();
            let without = note.outcome() == Outcome::NoExtension;
            if let Some(known) = self.databases.get_mut(&visit.database.to_u32()) {
                known.without = without.then_some(visit.news);
            }
        }
    }

    /// Ends visits one of whose steps takes too long; the cache is put off, as after an error.
    fn end_overdue(&mut self) {
        for (place, visit) in self.visits.iter_mut().enumerate() {
            let note = self.board.visit(place);
            let began = note.step_began.load(Acquire);
            let lasted = clock::now().saturating_sub(began);
            let Some(visit) = visit.as_mut().filter(|visit| !visit.overdue) else {
                continue;
            };
            if began != 0 && lasted > LONGEST_STEP.as_micros() as i64 {
                visit.overdue = true;
                let record = self.board.record(note.owner.load(Relaxed));
                upkeep::put_off(record);
                record.rest(clock::now(), LONGEST_STEP);
                pace::learn_end(record);
                visit.worker.terminate();
                pgrx::ereport!(
                    pgrx::PgLogLevel::WARNING,
                    pgrx::PgSqlErrorCode::ERRCODE_WARNING,
                    "pgcache ends a worker because one step of a sweep takes too long",
                    "A trigger on a cache does not return; the cache is put off, and the others are swept."
                );
            }
        }
    }

    /// Reads the list of databases: new ones are due at once, those that are gone are forgotten.
    fn learn(&mut self) {
        let Ok(present) = background::in_transaction(database::connectable) else {
            return;
        };
        let now = Instant::now();
        self.databases
            .retain(|&known, _| present.contains(&Oid::from_u32(known)));
        for database in present {
            self.databases.entry(database.to_u32()).or_insert(Known {
                next: now,
                next_alarmed: now,
                without: None,
            });
        }
    }

    /// Starts visits while there are places. Where one must wait, those who stay are told to leave.
    fn start_due(&mut self, interval: Duration) {
        while let Some((database, alarmed)) = self.next_visit() {
            let Some(place) = self.visits.iter().position(Option::is_none) else {
                return self.board.await_place(true);
            };
            let now = Instant::now();
            let next = self.due_after(database, alarmed, now, interval);
            let longest = next.saturating_duration_since(now);
            let visit = self.start(place, database, alarmed, longest);
            self.board.await_place(visit.is_none());
            self.complain(visit.is_none());
            if visit.is_none() {
                return;
            }
            self.visits[place] = visit;
            if let Some(known) = self.databases.get_mut(&database.to_u32()) {
                known.next = next;
                if alarmed {
                    known.next_alarmed = now + ALARMS_APART;
                }
            }
        }
    }

    /// The database that is visited next, and whether it is for an alarm. The longest overdue comes first.
    fn next_visit(&self) -> Option<(Oid, bool)> {
        let now = Instant::now();
        let due = self
            .unvisited()
            .filter(|(_, known)| self.due_at(known) <= now)
            .min_by_key(|(_, known)| known.next)
            .map(|(database, _)| (database, false));
        let alarmed = || {
            self.alarmed()
                .filter(|(_, known)| known.next_alarmed <= now)
                .min_by_key(|(_, known)| known.next_alarmed)
                .map(|(database, _)| (database, true))
        };
        due.or_else(alarmed)
    }

    fn start(
        &self,
        place: usize,
        database: Oid,
        alarmed: bool,
        longest: Duration,
    ) -> Option<Visit> {
        use std::sync::atomic::Ordering::SeqCst;
        let note = self.board.visit(place);
        note.tell(Outcome::Unknown);
        note.end();
        note.step_began.store(0, SeqCst);
        note.alarmed.store(alarmed, SeqCst);
        note.set_longest(longest);
        note.database.store(database.to_u32(), SeqCst);
        let news = self.board.news();
        let worker = background::start(place)?;
        Some(Visit {
            database,
            news,
            worker,
            overdue: false,
        })
    }

    /// When a database that is visited now is due again: an interval after it was, so that the rhythm holds,
    /// and not at once again after a long visit. One that comes for an alarm leaves the rhythm as it is.
    fn due_after(&self, database: Oid, alarmed: bool, now: Instant, interval: Duration) -> Instant {
        match self.databases.get(&database.to_u32()) {
            Some(known) if alarmed => known.next,
            Some(known) => (known.next + interval).max(now + interval / 2),
            None => now,
        }
    }

    /// The databases in which no worker is.
    fn unvisited(&self) -> impl Iterator<Item = (Oid, &Known)> {
        let visited = |database: Oid| {
            let here = |visit: &Visit| visit.database == database;
            self.visits
                .iter()
                .any(move |visit| visit.as_ref().is_some_and(here))
        };
        self.databases
            .iter()
            .map(|(&number, known)| (Oid::from_u32(number), known))
            .filter(move |&(database, _)| !visited(database))
    }

    /// Those of them whose caches have raised an alarm.
    fn alarmed(&self) -> impl Iterator<Item = (Oid, &Known)> {
        let alarmed: Vec<Oid> = self.board.alarmed().collect();
        self.unvisited()
            .filter(move |(database, known)| !self.is_without(known) && alarmed.contains(database))
    }

    /// A database without the extension waits for news, or for a long time.
    fn due_at(&self, known: &Known) -> Instant {
        let again = match session::in_recovery() {
            true => AGAIN_ON_STANDBY,
            false => AGAIN,
        };
        match self.is_without(known) {
            true => known.next + again,
            false => known.next,
        }
    }

    /// Whether a database has no extension, as far as is known.
    fn is_without(&self, known: &Known) -> bool {
        known.without == Some(self.board.news())
    }

    /// How long to sleep: not beyond a visit's longest step while there is one. None: until a signal comes.
    fn pause(&self, interval: Option<Duration>) -> Option<Duration> {
        let next = interval.map(|interval| self.until_next(interval));
        match self.visits.iter().any(Option::is_some) {
            true => Some(next.map_or(LONGEST_STEP, |next| next.min(LONGEST_STEP))),
            false => next,
        }
    }

    /// Until the next visit is due; at most an interval, after which the list is read again. While all
    /// places are taken, until one is free, which wakes the launcher.
    fn until_next(&self, interval: Duration) -> Duration {
        let now = Instant::now();
        let due = self.unvisited().map(|(_, known)| self.due_at(known));
        let alarmed = self.alarmed().map(|(_, known)| known.next_alarmed);
        let shortest = match self.short_of_workers {
            true => AGAIN_WITHOUT_WORKERS,
            false => SHORTEST,
        };
        due.chain(alarmed)
            .map(|moment| moment.saturating_duration_since(now))
            .min()
            .unwrap_or(interval)
            .clamp(shortest.min(interval), interval)
    }

    /// Says once that no worker could be started.
    fn complain(&mut self, failed: bool) {
        if failed && !self.short_of_workers {
            pgrx::ereport!(
                pgrx::PgLogLevel::WARNING,
                pgrx::PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                "pgcache could not start a worker to remove expired entries",
                "All of max_worker_processes are in use; it is tried again."
            );
        }
        self.short_of_workers = failed;
    }
}
