//! The launcher: one process for the server. It starts a visit to each database when the database is due.
//!
//! It reads the list of databases from the shared catalogs, and the visits report which databases have the extension.
//! A database without the extension is visited again after an extension was created or updated in any database. It is
//! also visited from time to time, because a standby does not see these changes.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::Oid;

use super::pace;
use crate::cache::expiry::upkeep;
use crate::guc;
use crate::pg::catalog::database;
use crate::pg::session::{self, clock, failure};
use crate::pg::shmem::cache_id::CacheId;
use crate::pg::shmem::worker_state::{Outcome, VISITS, WorkerShmem, worker_shmem};
use crate::pg::worker::background::{self, Started};

/// The time between visits to a database without the extension while no extension is created or updated. It is long,
/// because each visit costs the start of a process.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// The same time on a standby. It is shorter, because CREATE EXTENSION comes from the primary, without a message.
const LOOK_AGAIN_ON_STANDBY: Duration = Duration::from_secs(60);
/// The shortest sleep of the launcher: it replaces a shorter `pgcache.expire_interval`.
const SHORTEST: Duration = Duration::from_millis(100);
/// The shortest sleep of the launcher while no worker can be started, because no signal wakes the launcher when a
/// worker can be started again.
const SHORTEST_WITHOUT_WORKERS: Duration = Duration::from_secs(1);

/// The longest step of a sweep. Triggers on a cache are the code of its owner. A trigger that never returns would keep
/// all other caches of the database from being swept, and would hold back VACUUM.
const LONGEST_STEP: Duration = Duration::from_secs(30);

/// The longest time that VACUUM waits for other sessions to unpin a page. A cursor that is never closed may pin a page
/// of an unlogged table's index forever.
const LONGEST_WAIT_FOR_PAGE: Duration = Duration::from_secs(10);

/// The time between two visits to a database that only vacuum. The earlier of the two visits stays while more requests
/// arrive.
const REQUESTS_APART: Duration = Duration::from_secs(1);

/// The launcher's record of a database.
struct Known {
    /// When the next sweep of the database is due.
    next: Instant,
    /// When the next visit that answers requests for a VACUUM is due.
    next_request: Instant,
    /// The value of `extension_generation` at the beginning of the last visit, if the visit found no extension.
    without: Option<u64>,
}

/// A running visit.
struct Visit {
    database: Oid,
    /// The value of `extension_generation` at the beginning of the visit.
    generation: u64,
    worker: Started,
    /// Whether a step took too long and the worker was terminated.
    overdue: bool,
    /// When the worker was first seen waiting for a page; None if it does not wait.
    waits_since: Option<Instant>,
}

struct Launcher {
    shmem: WorkerShmem,
    databases: HashMap<u32, Known>,
    visits: [Option<Visit>; VISITS],
    /// Whether no worker could be started; the log already reports this.
    short_of_workers: bool,
}

/// Runs the launcher. It ends with the server. If it is terminated, the postmaster starts it again.
pub fn run() {
    let Some(shmem) = worker_shmem() else {
        background::end(0);
    };
    shmem.set_launcher();
    let mut launcher = Launcher {
        shmem,
        databases: HashMap::new(),
        visits: [const { None }; VISITS],
        short_of_workers: false,
    };
    while !background::is_end_requested() {
        background::reload_if_requested();
        launcher.reap();
        launcher.end_overdue();
        launcher.end_waits();
        let interval = guc::expire_interval().map(|interval| interval.max(SHORTEST));
        if let Some(interval) = interval {
            launcher.learn();
            launcher.start_due(interval);
        }
        let pauses = [launcher.pause(interval), background::do_beside()];
        background::sleep(pauses.into_iter().flatten().min());
    }
    background::end(1);
}

impl Launcher {
    /// Records the visits that have ended.
    fn reap(&mut self) {
        for place in 0..VISITS {
            let ended = |visit: &Visit| visit.worker.has_ended();
            if !self.visits[place].as_ref().is_some_and(ended) {
                continue;
            }
            let Some(visit) = self.visits[place].take() else {
                continue;
            };
            let shared = self.shmem.visit(place);
            shared.end_answering();
            if !visit.overdue && shared.step_began.load(Acquire) != 0 {
                self.put_off_after_end(shared.cache.load(Relaxed));
            }
            let without = shared.outcome() == Outcome::NoExtension;
            if let Some(known) = self.databases.get_mut(&visit.database.to_u32()) {
                known.without = without.then_some(visit.generation);
            }
        }
    }

    /// Terminates workers whose step takes too long. Postpones the sweep of their caches, as after an error.
    fn end_overdue(&mut self) {
        for (place, visit) in self.visits.iter_mut().enumerate() {
            let shared = self.shmem.visit(place);
            let began = shared.step_began.load(Acquire);
            let lasted = clock::now().saturating_sub(began);
            let Some(visit) = visit.as_mut().filter(|visit| !visit.overdue) else {
                continue;
            };
            if began != 0 && lasted > LONGEST_STEP.as_micros() as i64 {
                visit.overdue = true;
                if let Some(cache) = shared.cache.load(Relaxed) {
                    let state = self.shmem.sweep_state(cache);
                    upkeep::put_off(state);
                    state.rest(clock::now(), LONGEST_STEP);
                    pace::learn_end(state);
                }
                visit.worker.terminate();
                failure::warn(
                    PgSqlErrorCode::ERRCODE_WARNING,
                    "terminating a pgcache worker because one step of its sweep takes too long".into(),
                    "A trigger on a cache does not return. The sweep of this cache is postponed, and the other caches are swept.".into(),
                    "The next lines of this log report the worker's termination, and their context names the trigger's function.",
                );
            }
        }
    }

    /// Postpones the sweep of the cache in whose step a worker has ended. A trigger may have ended the worker, which
    /// then could not record its own end.
    fn put_off_after_end(&self, cache: Option<CacheId>) {
        let Some(cache) = cache else {
            return;
        };
        if upkeep::put_off(self.shmem.sweep_state(cache)) > 1 {
            return;
        }
        let (database, relation) = (cache.database().to_u32(), cache.relation().to_u32());
        failure::warn(
            PgSqlErrorCode::ERRCODE_WARNING,
            "postponing the sweep of a cache because a pgcache worker ended during the sweep"
                .into(),
            format!(
                "The cache has OID {relation} in the database with OID {database}. The other caches are swept."
            ),
            "In that database, SELECT OID::regclass shows the name of the cache. Check its triggers.",
        );
    }

    /// Cancels a VACUUM that has waited for a page too long. The next visit tries the VACUUM again.
    fn end_waits(&mut self) {
        for visit in self.visits.iter_mut().flatten() {
            let since = visit
                .worker
                .waits_for_page()
                .then(|| visit.waits_since.unwrap_or_else(Instant::now));
            visit.waits_since = since.filter(|since| since.elapsed() < LONGEST_WAIT_FOR_PAGE);
            if since.is_some() && visit.waits_since.is_none() {
                visit.worker.cancel();
            }
        }
    }

    /// Reads the list of databases. New databases are due at once; dropped databases are forgotten.
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
                next_request: now,
                without: None,
            });
        }
    }

    /// Starts visits while fewer than [`VISITS`] are running. If a database must wait for a visit, requests that the
    /// running visits end as soon as they can.
    fn start_due(&mut self, interval: Duration) {
        while let Some((database, only_vacuums)) = self.next_visit() {
            let Some(place) = self.visits.iter().position(Option::is_none) else {
                return self.shmem.set_place_wanted(true);
            };
            let now = Instant::now();
            let next = self.due_after(database, only_vacuums, now, interval);
            let longest = next.saturating_duration_since(now);
            let visit = self.start(place, database, only_vacuums, longest);
            self.shmem.set_place_wanted(visit.is_none());
            self.note_shortage(visit.is_none());
            if visit.is_none() {
                return;
            }
            self.visits[place] = visit;
            if let Some(known) = self.databases.get_mut(&database.to_u32()) {
                known.next = next;
                if only_vacuums {
                    known.next_request = now + REQUESTS_APART;
                }
            }
        }
    }

    /// Returns the database that is visited next, and whether only to vacuum. The database that is overdue for longest
    /// comes first; a request for a VACUUM comes after all due sweeps.
    fn next_visit(&self) -> Option<(Oid, bool)> {
        let now = Instant::now();
        let due = self
            .unvisited()
            .filter(|(_, known)| self.due_at(known) <= now)
            .min_by_key(|(_, known)| known.next)
            .map(|(database, _)| (database, false));
        let requested = || {
            self.to_vacuum()
                .filter(|(_, known)| known.next_request <= now)
                .min_by_key(|(_, known)| known.next_request)
                .map(|(database, _)| (database, true))
        };
        due.or_else(requested)
    }

    fn start(
        &self,
        place: usize,
        database: Oid,
        only_vacuums: bool,
        longest: Duration,
    ) -> Option<Visit> {
        use std::sync::atomic::Ordering::SeqCst;
        let shared = self.shmem.visit(place);
        shared.set_outcome(Outcome::Unknown);
        shared.end_answering();
        shared.step_began.store(0, SeqCst);
        shared.only_vacuums.store(only_vacuums, SeqCst);
        shared.set_longest(longest);
        shared.database.store(database.to_u32(), SeqCst);
        let generation = self.shmem.extension_generation();
        let worker = background::start(place)?;
        Some(Visit {
            database,
            generation,
            worker,
            overdue: false,
            waits_since: None,
        })
    }

    /// Returns when a database that is visited now is due again: one interval after its last due time, so that the
    /// visits keep their rhythm, but no sooner than half an interval from now. A visit that only vacuums does not
    /// change the rhythm.
    fn due_after(
        &self,
        database: Oid,
        only_vacuums: bool,
        now: Instant,
        interval: Duration,
    ) -> Instant {
        match self.databases.get(&database.to_u32()) {
            Some(known) if only_vacuums => known.next,
            Some(known) => (known.next + interval).max(now + interval / 2),
            None => now,
        }
    }

    /// Returns the databases that no worker is visiting.
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

    /// Returns the unvisited databases in which writers have requested a VACUUM.
    fn to_vacuum(&self) -> impl Iterator<Item = (Oid, &Known)> {
        let requested: Vec<Oid> = self.shmem.databases_to_vacuum().collect();
        self.unvisited().filter(move |(database, known)| {
            !self.is_without(known) && requested.contains(database)
        })
    }

    /// Returns when a database is due. A database without the extension is due again only after [`LOOK_AGAIN`], or on a
    /// standby after [`LOOK_AGAIN_ON_STANDBY`].
    fn due_at(&self, known: &Known) -> Instant {
        let again = match session::in_recovery() {
            true => LOOK_AGAIN_ON_STANDBY,
            false => LOOK_AGAIN,
        };
        match self.is_without(known) {
            true => known.next + again,
            false => known.next,
        }
    }

    /// Returns whether the last visit found no extension, and no extension was created or updated after it.
    fn is_without(&self, known: &Known) -> bool {
        known.without == Some(self.shmem.extension_generation())
    }

    /// Returns how long to sleep. None means until a signal comes. During a visit the sleep is at most the time that a
    /// VACUUM may wait for a page.
    fn pause(&self, interval: Option<Duration>) -> Option<Duration> {
        let next = interval.map(|interval| self.until_next(interval));
        match self.visits.iter().any(Option::is_some) {
            true => Some(next.map_or(LONGEST_WAIT_FOR_PAGE, |next| {
                next.min(LONGEST_WAIT_FOR_PAGE)
            })),
            false => next,
        }
    }

    /// Returns the time until the next visit is due. The time is at most one interval, because the list of databases is
    /// then read again. The end of a visit wakes the launcher earlier.
    fn until_next(&self, interval: Duration) -> Duration {
        let now = Instant::now();
        let due = self.unvisited().map(|(_, known)| self.due_at(known));
        let requested = self.to_vacuum().map(|(_, known)| known.next_request);
        let shortest = match self.short_of_workers {
            true => SHORTEST_WITHOUT_WORKERS,
            false => SHORTEST,
        };
        due.chain(requested)
            .map(|moment| moment.saturating_duration_since(now))
            .min()
            .unwrap_or(interval)
            .clamp(shortest.min(interval), interval)
    }

    /// Reports once that no worker can be started.
    fn note_shortage(&mut self, failed: bool) {
        if failed && !self.short_of_workers {
            failure::warn(
                PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                "could not start a pgcache worker to remove expired entries".into(),
                "All processes that max_worker_processes allows are in use. The start will be tried again.".into(),
                "Raise max_worker_processes.",
            );
        }
        self.short_of_workers = failed;
    }
}
