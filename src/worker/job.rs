//! The sweep of one cache in a visit, step by step: a pass, a trimming, and both again while writers are so fast
//! that the cache is above its limit; then its VACUUM. Other caches have their turns between the steps.
//!
//! `visit` decides when a step is made, and opens a transaction around each.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::pace::{self, LONG};
use crate::cache::catalog::registry::Storage;
use crate::cache::expiry::pass::Pass;
use crate::cache::expiry::sweep;
use crate::cache::expiry::trim::{Spare, Trim};
use crate::cache::expiry::upkeep::Due;
use crate::pg::session::{advisory, clock};
use crate::pg::shmem::worker_state::SweepState;

/// A pass that finds little may work for one part in so many of the interval, then goes on at the next visit.
pub const SHARE: u32 = 5;

/// One cache's sweep, as far as it has come.
pub struct Job {
    pub due: Due,
    pub state: &'static SweepState,
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
    /// The cache has no `max_entries`, for which all rows must be counted: the pass may end early.
    bounded: bool,
}

struct Trimming {
    pass: Pass,
    spare: Spare,
    trim: Option<Trim>,
    excess: Option<i64>,
    /// There were more rows above the limit than are tolerated.
    again: bool,
}

/// What a step did.
pub struct Did {
    /// It had as much to do as it may take on, so its time says how long a whole step takes.
    whole: bool,
    worthwhile: bool,
    complete: bool,
}

impl Job {
    /// A sweep that begins with a pass.
    pub fn new(due: Due, state: &'static SweepState) -> Job {
        Job {
            due,
            state,
            began: Instant::now(),
            used: Duration::ZERO,
            longest: Duration::ZERO,
            stage: Stage::Pass(Passing::default()),
        }
    }

    /// A round begins: the time used so far no longer counts.
    pub fn begin_round(&mut self) {
        self.used = Duration::ZERO;
    }

    /// Whether both are sweeps of one cache.
    pub fn is_of(&self, other: &Job) -> bool {
        self.due.owner == other.due.owner
    }

    /// Whether one of the cache's last steps took long.
    pub fn is_slow(&self) -> bool {
        self.state.is_slow()
    }

    /// The cache with the least rank is next: those without long steps first, then by the time used.
    pub fn rank(&self) -> (u32, Duration) {
        (self.state.slow_since(), self.used)
    }

    /// Charges the time of a step to the cache.
    pub fn charge(&mut self, took: Duration) {
        self.used += took;
        self.longest = self.longest.max(took);
        if took > LONG {
            self.state.rest(clock::now(), took);
        }
    }

    /// The sweep has ended. Without a long step in it the cache no longer counts as slow.
    pub fn end(&self) {
        if self.longest <= LONG {
            self.state.end_rest();
        }
    }

    /// Whether only its VACUUM is left.
    pub fn is_swept(&self) -> bool {
        matches!(self.stage, Stage::Vacuum)
    }

    /// Sweeps no more; what has died until now is still vacuumed.
    pub fn give_up(&mut self) {
        self.stage = Stage::Vacuum;
    }

    /// One step, inside of a transaction; None when the cache cannot be swept.
    pub fn step(&mut self) -> Option<Did> {
        match &mut self.stage {
            Stage::Pass(passing) => passing.step(&self.due, self.state),
            Stage::Trim(trimming) => trimming.step(&self.due, self.state),
            Stage::Vacuum => None,
        }
    }

    /// Goes on after a step: to the next step, or the next stage. `took` is the step's time, `share` the part of
    /// the interval that [`SHARE`] stands for.
    pub fn go_on(&mut self, did: Option<Did>, took: Duration, share: Duration) {
        if let Some(did) = &did {
            pace::learn(self.state, took, did.whole);
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Vacuum);
        let (next, succeeded) = match stage {
            Stage::Pass(passing) => passing.next(did, took, share),
            Stage::Trim(trimming) => trimming.next(did, self.began.elapsed() > share * SHARE),
            Stage::Vacuum => (Stage::Vacuum, false),
        };
        if succeeded {
            self.state.failures.store(0, Relaxed);
        }
        self.stage = next;
    }
}

impl Passing {
    fn step(&mut self, due: &Due, state: &SweepState) -> Option<Did> {
        let open = sweep::open(due.relation)?;
        if open.cache.storage == Storage::Memory || !advisory::try_sweep(due.relation) {
            return None;
        }
        self.bounded = open.cache.settings.max_entries.is_none();
        let (most, blocks) = (pace::rows(state), pace::blocks(state));
        let pass = self
            .pass
            .get_or_insert_with(|| Pass::begin(&open.cache, Some(state)));
        pass.set_reach(blocks);
        let step = (!pass.is_complete()).then(|| pass.step(&open.cache, most));
        pass.note(state);
        // Under the lock on the table, so a change of its settings comes before this or after it.
        if pass.is_complete() {
            state.changes.store(due.changes, Relaxed);
        }
        let removed = step.as_ref().map_or(0, |step| step.removed);
        Some(Did {
            whole: removed >= most || removed == 0,
            worthwhile: step.is_some_and(|step| step.worthwhile),
            complete: pass.is_complete(),
        })
    }

    /// The pass goes on until it is complete, or has spent its share of the interval on steps that found little.
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
    fn step(&mut self, due: &Due, state: &SweepState) -> Option<Did> {
        let open = sweep::open(due.relation)?;
        if !advisory::try_sweep(due.relation) {
            return None;
        }
        let most = pace::rows(state);
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

    /// Where the cache may be above its limit again, all begins anew.
    fn next(mut self, did: Option<Did>, too_long: bool) -> (Stage, bool) {
        if did.is_some_and(|did| !did.complete) {
            return (Stage::Trim(self), false);
        }
        self.excess = self.trim.take().map(|trim| trim.excess());
        if self.spare == Spare::Used {
            self.spare = Spare::None;
            return (Stage::Trim(self), false);
        }
        // Where rows cannot be removed, a second time would do no better.
        let again = self.again && self.excess.is_some_and(|left| left <= 0);
        match again && !too_long {
            true => (Stage::Pass(Passing::default()), false),
            false => (Stage::Vacuum, true),
        }
    }
}
