//! The sweep of one cache in a visit: a pass, a trimming, and both again while writers are so fast that the limit
//! does not hold yet; then its VACUUM. Made in steps, each a transaction, between which others have their turn.
//!
//! Not when a step is made, nor the transaction around it: that is `visit`.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::pace::{self, LONG};
use crate::cache::catalog::registry::Storage;
use crate::cache::expiry::pass::Pass;
use crate::cache::expiry::sweep;
use crate::cache::expiry::trim::{Spare, Trim};
use crate::cache::expiry::upkeep::Due;
use crate::pg::session::{advisory, clock};
use crate::pg::shmem::worker_state::Record;

/// A pass that finds little may work for this part of the interval, then goes on at the next visit.
pub const SHARE: u32 = 5;

pub struct Job {
    pub due: Due,
    pub record: &'static Record,
    began: Instant,
    /// Time that it has used in this round.
    used: Duration,
    longest: Duration,
    stage: Stage,
}

enum Stage {
    Pass(Passing),
    Trim(Trimming),
    Vacuum,
}

#[derive(Default)]
struct Passing {
    pass: Option<Pass>,
    fruitless: Duration,
    /// There is no limit for which all rows must be counted.
    bounded: bool,
}

struct Trimming {
    pass: Pass,
    spare: Spare,
    trim: Option<Trim>,
    excess: Option<i64>,
    /// It had more to trim than the limit's tolerance.
    again: bool,
}

/// What a step did.
pub struct Did {
    /// It removed as many rows as it may, or had less of the table to look at than there was.
    whole: bool,
    worthwhile: bool,
    complete: bool,
}

impl Job {
    pub fn new(due: Due, record: &'static Record) -> Job {
        Job {
            due,
            record,
            began: Instant::now(),
            used: Duration::ZERO,
            longest: Duration::ZERO,
            stage: Stage::Pass(Passing::default()),
        }
    }

    pub fn begin_round(&mut self) {
        self.used = Duration::ZERO;
    }

    pub fn is_of(&self, other: &Job) -> bool {
        self.due.owner == other.due.owner
    }

    pub fn is_slow(&self) -> bool {
        self.record.is_slow()
    }

    /// Who has the least of it is next.
    pub fn rank(&self) -> (u32, Duration) {
        (self.record.slow_since(), self.used)
    }

    /// What a step cost.
    pub fn charge(&mut self, took: Duration) {
        self.used += took;
        self.longest = self.longest.max(took);
        if took > LONG {
            self.record.rest(clock::now(), took);
        }
    }

    /// It has ended.
    pub fn end(&self) {
        if self.longest <= LONG {
            self.record.is_slow_no_more();
        }
    }

    pub fn is_swept(&self) -> bool {
        matches!(self.stage, Stage::Vacuum)
    }

    /// Nothing more is swept; what has died all the same is vacuumed.
    pub fn give_up(&mut self) {
        self.stage = Stage::Vacuum;
    }

    /// One step, inside of a transaction; None when the cache cannot be swept.
    pub fn step(&mut self) -> Option<Did> {
        match &mut self.stage {
            Stage::Pass(passing) => passing.step(&self.due, self.record),
            Stage::Trim(trimming) => trimming.step(&self.due, self.record),
            Stage::Vacuum => None,
        }
    }

    /// Goes on to what is next after a step that took so long. `share`: see [`SHARE`].
    pub fn go_on(&mut self, did: Option<Did>, took: Duration, share: Duration) {
        if let Some(did) = &did {
            pace::learn(self.record, took, did.whole);
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Vacuum);
        let (next, succeeded) = match stage {
            Stage::Pass(passing) => passing.next(did, took, share),
            Stage::Trim(trimming) => trimming.next(did, self.began.elapsed() > share * SHARE),
            Stage::Vacuum => (Stage::Vacuum, false),
        };
        if succeeded {
            self.record.failures.store(0, Relaxed);
        }
        self.stage = next;
    }
}

impl Passing {
    fn step(&mut self, due: &Due, record: &Record) -> Option<Did> {
        let open = sweep::open(due.relation)?;
        if open.cache.storage == Storage::Memory || !advisory::try_sweep(due.relation) {
            return None;
        }
        self.bounded = open.cache.settings.max_entries.is_none();
        let (most, blocks) = (pace::rows(record), pace::blocks(record));
        let pass = self
            .pass
            .get_or_insert_with(|| Pass::begin(&open.cache, Some(record)));
        pass.set_reach(blocks);
        let step = (!pass.is_complete()).then(|| pass.step(&open.cache, most));
        pass.note(record);
        // Under the lock on the table: who changes its settings afterwards has the last word.
        if pass.is_complete() {
            record.changes.store(due.changes, Relaxed);
        }
        let removed = step.as_ref().map_or(0, |step| step.removed);
        Some(Did {
            whole: removed >= most || removed == 0,
            worthwhile: step.is_some_and(|step| step.worthwhile),
            complete: pass.is_complete(),
        })
    }

    /// A pass goes as far as it is worth its time.
    fn next(mut self, did: Option<Did>, took: Duration, share: Duration) -> (Stage, bool) {
        let (Some(did), Some(pass)) = (did, self.pass.take()) else {
            return (Stage::Vacuum, false);
        };
        if did.complete {
            return (Stage::Trim(Trimming::after(pass)), false);
        }
        if !did.worthwhile {
            self.fruitless += took;
        }
        if self.bounded && self.fruitless > share {
            return (Stage::Vacuum, true);
        }
        self.pass = Some(pass);
        (Stage::Pass(self), false)
    }
}

impl Trimming {
    fn after(pass: Pass) -> Trimming {
        Trimming {
            pass,
            spare: Spare::Used,
            trim: None,
            excess: None,
            again: false,
        }
    }

    /// Brings a cache down to its `max_entries` after a complete pass.
    fn step(&mut self, due: &Due, record: &Record) -> Option<Did> {
        let open = sweep::open(due.relation)?;
        if !advisory::try_sweep(due.relation) {
            return None;
        }
        let most = pace::rows(record);
        let pass = &self.pass;
        let excess = *self
            .excess
            .get_or_insert_with(|| sweep::excess(&open.cache, pass));
        self.again |= excess > sweep::tolerance(&open.cache);
        let trim = self
            .trim
            .get_or_insert_with(|| Trim::begin(&open.cache, excess));
        let removed = match trim.is_complete() {
            true => 0,
            false => trim.step(&open.cache, self.spare, most),
        };
        Some(Did {
            whole: removed >= most,
            worthwhile: true,
            complete: trim.is_complete(),
        })
    }

    /// Where it may have grown beyond its limit again meanwhile, all begins anew.
    fn next(mut self, did: Option<Did>, too_long: bool) -> (Stage, bool) {
        if did.is_some_and(|did| !did.complete) {
            return (Stage::Trim(self), false);
        }
        self.excess = self.trim.take().map(|trim| trim.excess());
        if self.spare == Spare::Used {
            self.spare = Spare::None;
            return (Stage::Trim(self), false);
        }
        // Where rows cannot go, a second time would be no better.
        let again = self.again && self.excess.is_some_and(|left| left <= 0);
        match again && !too_long {
            true => (Stage::Pass(Passing::default()), false),
            false => (Stage::Vacuum, true),
        }
    }
}
