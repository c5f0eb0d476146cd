//! [`Job`]: the sweep of one cache within a visit, step by step, followed by its VACUUM. The sweep is repeated if
//! writers have put the cache above its limit while it ran. Other caches take their turns between the steps.
//!
//! `visit` decides when a step runs, and opens a transaction for each step.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::pace::{self, LONG};
use crate::cache::catalog::registry::Storage;
use crate::cache::expiry::sweep::{Step, StepSize, Sweep};
use crate::cache::expiry::sweepable;
use crate::cache::expiry::upkeep::Due;
use crate::pg::session::{advisory, clock};
use crate::pg::shmem::worker_state::SweepState;

/// A pass that finds little may use a fifth of the interval (1 / `SHARE`), and continues at the next visit.
pub const SHARE: u32 = 5;

/// The sweep of one cache, and its progress.
pub struct Job {
    pub due: Due,
    pub state: &'static SweepState,
    began: Instant,
    /// The time used in this round.
    used: Duration,
    longest: Duration,
    /// None before the first step.
    sweep: Option<Sweep>,
    /// The time of steps that found little.
    fruitless: Duration,
    /// Whether the sweep has ended and the VACUUM is next.
    swept: bool,
}

impl Job {
    /// Returns a job at the beginning of its sweep.
    pub fn new(due: Due, state: &'static SweepState) -> Job {
        state.owner.store(due.owner.to_u32(), Relaxed);
        Job {
            due,
            state,
            began: Instant::now(),
            used: Duration::ZERO,
            longest: Duration::ZERO,
            sweep: None,
            fruitless: Duration::ZERO,
            swept: false,
        }
    }

    /// Begins a round: the time that earlier rounds have used no longer counts.
    pub fn begin_round(&mut self) {
        self.used = Duration::ZERO;
    }

    /// Returns whether both jobs sweep the same cache.
    pub fn is_of(&self, other: &Job) -> bool {
        self.due.cache == other.due.cache
    }

    /// Returns whether the cache counts as slow.
    pub fn is_slow(&self) -> bool {
        self.state.is_slow()
    }

    /// Returns the rank; the cache with the lowest rank is next. Caches of owners without a long step come first, then
    /// caches without a long step, then caches that have used the least time. `owner` is the time of the last long step
    /// of the owner's caches, 0 if none was long.
    pub fn rank(&self, owner: u32) -> (u32, u32, Duration) {
        (owner, self.state.slow_since(), self.used)
    }

    /// Charges the time of a step to the cache.
    pub fn charge(&mut self, took: Duration) {
        self.used += took;
        self.longest = self.longest.max(took);
        if took > LONG {
            self.state.rest(clock::now(), took);
        }
    }

    /// Ends the job. If it had no long step, the cache no longer counts as slow.
    pub fn end(&self) {
        if self.longest <= LONG {
            self.state.end_rest();
        }
    }

    /// Returns whether only the VACUUM remains.
    pub fn is_swept(&self) -> bool {
        self.swept
    }

    /// Stops the sweep. The VACUUM still follows, for rows that died before the stop.
    pub fn give_up(&mut self) {
        self.swept = true;
    }

    /// Runs one step, within a transaction. Returns None if the cache cannot be swept.
    pub fn step(&mut self) -> Option<Step> {
        let sweepable = sweepable::open(self.due.relation)?;
        let cache = &*sweepable.cache;
        if cache.storage == Storage::Memory || !advisory::try_sweep(self.due.relation) {
            return None;
        }
        let (state, changes) = (self.state, self.due.changes);
        let sweep = self
            .sweep
            .get_or_insert_with(|| Sweep::of_worker(cache, state, changes));
        let size = StepSize {
            rows: pace::rows(state),
            blocks: pace::blocks(state),
        };
        Some(sweep.step(cache, size))
    }

    /// Decides how the job continues after a step that took the time `took`. `share` is a fifth of the interval (1 /
    /// [`SHARE`]): a pass continues until it is complete, or has spent this time on steps that found little.
    pub fn go_on(&mut self, step: Option<Step>, took: Duration, share: Duration) {
        let (Some(step), Some(sweep)) = (step, &self.sweep) else {
            return self.give_up();
        };
        pace::learn(self.state, took, step.whole);
        if !step.worthwhile {
            self.fruitless += took;
        }
        let ends_early = sweep.may_end_early() && self.fruitless > share;
        if !sweep.is_complete() && !ends_early {
            return;
        }
        let too_long = self.began.elapsed() > share * SHARE;
        if sweep.is_to_repeat() && !too_long {
            self.sweep = None;
            self.fruitless = Duration::ZERO;
            return;
        }
        self.swept = true;
        self.state.failures.store(0, Relaxed);
    }
}
