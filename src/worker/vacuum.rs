//! Vacuums the tables of the visited database: after a sweep, when a writer requests a VACUUM, and again while the
//! rows of a table die quickly.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use super::pace::LONG;
use crate::cache::expiry::upkeep::{self, Due};
use crate::cache::expiry::vacuum_need::{self, VacuumNeed};
use crate::guc;
use crate::pg::session::{self, clock};
use crate::pg::shmem::worker_state::{SweepState, WorkerShmem};
use crate::pg::worker::{background, vacuum_table};

/// The time between two reads of Postgres' counters, which sessions report once a second.
const PAUSE: Duration = Duration::from_secs(1);
/// A table that needed no VACUUM for this long is quiet.
const REST: Duration = Duration::from_micros(vacuum_need::QUIET as u64);

/// The shortest stay of a visit, even if another database waits for a visit.
const TURN: Duration = Duration::from_secs(10);

/// The state of the VACUUMs of one visit.
pub struct Vacuums {
    shmem: WorkerShmem,
    /// The number of requests when all requests were last answered.
    answered: u64,
    busy: Vec<Busy>,
}

/// A cache whose rows die quickly, and the last time when it needed a VACUUM.
struct Busy {
    due: Due,
    last: Instant,
}

impl Vacuums {
    /// Returns the state of a new visit, for which all requests are unanswered.
    pub fn new(shmem: WorkerShmem) -> Vacuums {
        Vacuums {
            shmem,
            answered: 0,
            busy: Vec::new(),
        }
    }

    /// Vacuums a cache if it needs a VACUUM, and then remembers it as busy.
    pub fn look_at(&mut self, due: &Due) {
        if !vacuum_tables(self.shmem, due, vacuum_need::tables_to_vacuum) {
            return;
        }
        let last = Instant::now();
        let of_due = |busy: &&mut Busy| busy.due.cache == due.cache;
        match self.busy.iter_mut().find(of_due) {
            Some(busy) => busy.last = last,
            None => {
                let due = due.clone();
                self.busy.push(Busy { due, last });
            }
        }
    }

    /// Vacuums the caches for which writers have requested a VACUUM since the last check; called outside transactions.
    /// While other caches wait for their turns, skips a cache that rests after a long step, and keeps its request.
    pub fn answer_requests(&mut self, others_wait: bool) {
        let requests = self.shmem.vacuum_requests();
        if requests == self.answered {
            return;
        }
        let mut left = false;
        let shmem = self.shmem;
        for (relation, state) in shmem.of_database(session::database()) {
            if state.vacuum_requested.load(Relaxed) == 0 {
                continue;
            }
            if others_wait && state.rests_for(clock::now()).is_some() {
                left = true;
                continue;
            }
            state.vacuum_requested.store(0, Relaxed);
            match background::in_transaction(|| vacuum_need::answer(relation, state)) {
                Ok(Some(due)) if !upkeep::is_put_off(state) => self.look_at(&due),
                _ => vacuum_need::forget(state),
            }
        }
        if !left {
            self.answered = requests;
        }
    }

    /// Returns whether every cache has become quiet: none has rows that die quickly.
    pub fn have_come_to_rest(&self) -> bool {
        self.busy.is_empty()
    }

    /// Vacuums the caches whose rows die quickly, again and again, until all of them are quiet or the time is `until`.
    /// Ends earlier if another database waits for a visit, but not in the first ten seconds.
    pub fn stay(&mut self, until: Instant) {
        let shmem = self.shmem;
        let began = Instant::now();
        let mut looked = began;
        let is_over =
            |now: Instant| now >= until || (now - began >= TURN && shmem.is_place_wanted());
        while !self.busy.is_empty() && !is_over(Instant::now()) {
            background::show(None);
            background::sleep(Some(PAUSE.saturating_sub(looked.elapsed())));
            background::reload_if_requested();
            if guc::expire_interval().is_none() {
                return;
            }
            self.answer_requests(false);
            if looked.elapsed() < PAUSE {
                continue;
            }
            looked = Instant::now();
            self.busy.retain_mut(|busy| {
                if vacuum_tables(shmem, &busy.due, vacuum_need::tables_to_vacuum) {
                    busy.last = Instant::now();
                }
                let rests = busy.last.elapsed() >= REST;
                if rests {
                    vacuum_tables(shmem, &busy.due, vacuum_need::tables_to_shorten);
                }
                !rests
            });
        }
    }
}

/// A function that returns the tables to vacuum of a cache.
type Which = fn(Oid, &SweepState) -> Vec<VacuumNeed>;

/// Vacuums the tables of a cache that `which` returns. Returns false if `which` returns no table, or if a VACUUM
/// failed.
fn vacuum_tables(shmem: WorkerShmem, due: &Due, which: Which) -> bool {
    let state = shmem.sweep_state(due.cache);
    let began = Instant::now();
    let done = try_vacuum(due, state, which);
    let took = began.elapsed();
    if took > LONG {
        state.rest(clock::now(), took);
    }
    if done.is_none() {
        vacuum_need::forget(state);
        // Make the next sweep read the table, even if the table does not change any more.
        upkeep::look_again(due.relation);
    }
    done.unwrap_or(false)
}

/// Vacuums as [`vacuum_tables`] does; returns None if a VACUUM failed.
fn try_vacuum(due: &Due, state: &SweepState, which: Which) -> Option<bool> {
    let worth = background::in_transaction(|| which(due.relation, state)).ok()?;
    for table in &worth {
        background::show(Some(&format!("vacuuming {}", due.name)));
        vacuum_need::begin(table, state);
        match vacuum_table::vacuum(table.table, table.shorten) {
            Ok(()) => {}
            Err(failure) if failure.cancelled || failure.locked => return None,
            Err(failure) => {
                upkeep::put_off_for(&failure, state, &due.name);
                return None;
            }
        }
        background::in_transaction(|| vacuum_need::note(table, state)).ok()?;
    }
    Some(!worth.is_empty())
}
