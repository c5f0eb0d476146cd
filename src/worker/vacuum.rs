//! VACUUM of what was emptied: after a sweep, at an alarm, and again as long as a table dies quickly.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use super::pace::LONG;
use crate::cache::expiry::upkeep::{self, Due};
use crate::cache::expiry::vacuum_need::{self, Worth};
use crate::guc;
use crate::pg::session::{self, clock};
use crate::pg::shmem::worker_state::{Board, Record};
use crate::pg::table::storage;
use crate::pg::worker::background;

/// Between two looks at what Postgres has counted, which sessions report once a second.
const PAUSE: Duration = Duration::from_secs(1);
/// A table that was not worth it for so long has come to rest.
const REST: Duration = Duration::from_micros(vacuum_need::QUIET as u64);

/// While others wait nobody stays for longer, however long the interval.
const TURN: Duration = Duration::from_secs(10);

/// The tables of one database.
pub struct Vacuums {
    board: Board,
    /// The alarms that were looked at, by their number.
    heard: u64,
    busy: Vec<Busy>,
}

/// A cache that dies quickly, and when it was last worth it.
struct Busy {
    due: Due,
    last: Instant,
}

impl Vacuums {
    pub fn new(board: Board) -> Vacuums {
        Vacuums {
            board,
            heard: 0,
            busy: Vec::new(),
        }
    }

    /// Vacuums a cache if it is worth it, and remembers that it was.
    pub fn look_at(&mut self, due: &Due) {
        if !vacuum(self.board, due, vacuum_need::worth_vacuum) {
            return;
        }
        let last = Instant::now();
        let of_due = |busy: &&mut Busy| busy.due.owner == due.owner;
        match self.busy.iter_mut().find(of_due) {
            Some(busy) => busy.last = last,
            None => {
                let due = due.clone();
                self.busy.push(Busy { due, last });
            }
        }
    }

    /// Vacuums the caches whose writers have raised an alarm since the last look. Outside of transactions. While
    /// others wait for their turn, one that has just taken long does so, too: its alarm stays.
    pub fn answer_alarms(&mut self, others_wait: bool) {
        let alarms = self.board.alarms();
        if alarms == self.heard {
            return;
        }
        let mut left = false;
        let board = self.board;
        for (relation, record) in board.of_database(session::database()) {
            if record.alarm.load(Relaxed) == 0 {
                continue;
            }
            if others_wait && record.rests_for(clock::now()).is_some() {
                left = true;
                continue;
            }
            record.alarm.store(0, Relaxed);
            match background::in_transaction(|| vacuum_need::answer(relation, record)) {
                Ok(Some(due)) if !upkeep::is_put_off(record) => self.look_at(&due),
                _ => vacuum_need::forget(record),
            }
        }
        if !left {
            self.heard = alarms;
        }
    }

    pub fn have_come_to_rest(&self) -> bool {
        self.busy.is_empty()
    }

    /// Stays with what dies quickly until all of it has come to rest, or until then; after a while also
    /// until somebody else needs the place.
    pub fn stay(&mut self, until: Instant) {
        let board = self.board;
        let began = Instant::now();
        let mut looked = began;
        let is_over = |now: Instant| now >= until || (now - began >= TURN && board.is_awaited());
        while !self.busy.is_empty() && !is_over(Instant::now()) {
            background::show(None);
            background::sleep(Some(PAUSE.saturating_sub(looked.elapsed())));
            background::reload_if_asked();
            if guc::expire_interval().is_none() {
                return;
            }
            self.answer_alarms(false);
            if looked.elapsed() < PAUSE {
                continue;
            }
            looked = Instant::now();
            self.busy.retain_mut(|busy| {
                if vacuum(board, &busy.due, vacuum_need::worth_vacuum) {
                    busy.last = Instant::now();
                }
                let rests = busy.last.elapsed() >= REST;
                if rests {
                    vacuum(board, &busy.due, vacuum_need::worth_shortening);
                }
                !rests
            });
        }
    }
}

/// Which tables of a cache are to be vacuumed.
type Which = fn(Oid, &Record) -> Vec<Worth>;

/// Vacuums those tables of a cache; whether there were any.
fn vacuum(board: Board, due: &Due, which: Which) -> bool {
    let record = board.record(due.owner);
    let began = Instant::now();
    let done = try_vacuum(due, record, which);
    let took = began.elapsed();
    if took > LONG {
        record.rest(clock::now(), took);
    }
    if done.is_none() {
        vacuum_need::forget(record);
    }
    done.unwrap_or(false)
}

/// None where it could not be done.
fn try_vacuum(due: &Due, record: &Record, which: Which) -> Option<bool> {
    let worth = background::in_transaction(|| which(due.relation, record)).ok()?;
    for table in &worth {
        background::show(Some(&format!("vacuuming {}", due.name)));
        vacuum_need::begin(table, record);
        match storage::vacuum(table.table, table.shorten) {
            Ok(()) => {}
            Err(failure) if failure.cancelled || failure.locked => return None,
            Err(failure) => {
                crate::worker::put_off(due, record, &failure);
                return None;
            }
        }
        background::in_transaction(|| vacuum_need::note(table, record)).ok()?;
    }
    Some(!worth.is_empty())
}
