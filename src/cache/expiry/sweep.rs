//! Sweeps a table cache step by step: removes expired rows, then rows beyond `max_entries` or `max_bytes`. Reads never
//! depend on a sweep; it only frees space.
//!
//! This file alone defines the order of the steps. `cache_expire` takes all steps in one transaction (`on_demand`). A
//! worker takes each step in a separate transaction and sweeps other caches in between (`worker::sweep_job`). A sweep
//! waits for no session: locked rows stay for the next sweep.

use std::sync::atomic::Ordering::Relaxed;

use super::pass::{CHUNK, Pass};
use super::trim::{Excess, Spare, Trim};
use crate::cache::catalog::registry::Cache;
use crate::pg::shmem::worker_state::SweepState;

/// The limits of one step.
#[derive(Clone, Copy)]
pub struct StepSize {
    /// The number of rows that the step may remove.
    pub rows: i64,
    /// The number of blocks that the step may read, at most [`CHUNK`].
    pub blocks: u32,
}

impl StepSize {
    pub const WHOLE: StepSize = StepSize {
        rows: i64::MAX,
        blocks: CHUNK,
    };
}

/// The result of a step.
pub struct Step {
    /// Whether the step used its whole budget, so that its duration can serve as the duration of a whole step.
    pub whole: bool,
    /// Whether the step found enough to continue at once.
    pub worthwhile: bool,
}

/// The state of a sweep. An error in a step ends it.
pub struct Sweep {
    /// The shared state that keeps results for the next sweep; None without shared memory, or while another session
    /// sweeps the cache.
    state: Option<&'static SweepState>,
    /// The table's counter of changes before the sweep. It is stored when the pass is complete.
    changes: Option<i64>,
    /// The number of expired rows that the sweep may remove; None means all. The cache's limits are enforced in any
    /// case.
    max_rows: Option<i64>,
    /// Whether the sweep enforces `max_entries` and `max_bytes`.
    trims: bool,
    /// Whether the sweep may end before the pass is complete. It may if the cache has no limit; with a limit, all rows
    /// must be counted.
    may_end_early: bool,
    /// Whether the number of rows beyond the limit was larger than the tolerance.
    was_far_beyond: bool,
    expired: i64,
    stage: Stage,
}

enum Stage {
    /// Removes expired rows.
    Pass(Pass),
    /// The pass has removed `max_rows` rows, so this stage counts the rest of the table.
    Count(Pass),
    /// Removes expired rows that the pass has left: all of them if the cache is beyond `max_bytes`, otherwise at most
    /// as many as there are rows beyond `max_entries`.
    Leftover {
        pass: Pass,
        wanted: i64,
        excess: Excess,
    },
    /// Removes live rows beyond `max_entries` or `max_bytes`.
    Trim(Trim),
    /// All work is done. `excess` is the excess that could not be removed.
    Complete { excess: Excess },
}

impl Sweep {
    /// Begins a sweep that removes at most `max_rows` expired rows. The caller holds a writer's lock on the table.
    /// `alone` is true if no other session sweeps the table; otherwise the other session writes the state and trims.
    pub fn on_demand(
        cache: &Cache,
        state: Option<&'static SweepState>,
        max_rows: i64,
        alone: bool,
    ) -> Sweep {
        Sweep {
            state: state.filter(|_| alone),
            changes: None,
            max_rows: Some(max_rows),
            trims: alone,
            ..Sweep::begin(cache, state)
        }
    }

    /// Begins a sweep of the whole table by a worker, which is the only sweeper. `changes` is the table's counter of
    /// changes before the sweep.
    pub fn of_worker(cache: &Cache, state: &'static SweepState, changes: i64) -> Sweep {
        Sweep {
            changes: Some(changes),
            ..Sweep::begin(cache, Some(state))
        }
    }

    fn begin(cache: &Cache, state: Option<&'static SweepState>) -> Sweep {
        Sweep {
            state,
            changes: None,
            max_rows: None,
            trims: true,
            may_end_early: false,
            was_far_beyond: false,
            expired: 0,
            stage: Stage::Pass(Pass::begin(cache, state)),
        }
    }

    pub fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete { .. })
    }

    /// Returns the number of expired rows that the sweep has removed.
    pub fn expired(&self) -> i64 {
        self.expired
    }

    /// Returns whether the sweep may end before it is complete. The next sweep then continues at the same block.
    pub fn may_end_early(&self) -> bool {
        self.may_end_early && matches!(self.stage, Stage::Pass(_))
    }

    /// Returns whether the cache may be beyond its limit again after a complete sweep, because many rows were added
    /// while the sweep trimmed. Returns false if rows could not be removed, because a second sweep would do no better.
    pub fn is_to_repeat(&self) -> bool {
        self.was_far_beyond && matches!(self.stage, Stage::Complete { excess } if excess.is_none())
    }

    /// Takes one step. The caller holds a writer's lock on the table, and has the privileges of a sweep.
    pub fn step(&mut self, cache: &Cache, size: StepSize) -> Step {
        let excess = Excess::default();
        match std::mem::replace(&mut self.stage, Stage::Complete { excess }) {
            Stage::Pass(pass) => self.step_of_pass(cache, pass, size),
            Stage::Count(pass) => self.count(cache, pass),
            Stage::Leftover {
                pass,
                wanted,
                excess,
            } => self.expire_leftover(cache, pass, wanted, excess),
            Stage::Trim(trim) => self.step_of_trim(cache, trim, size),
            Stage::Complete { excess } => {
                self.stage = Stage::Complete { excess };
                Step {
                    whole: false,
                    worthwhile: false,
                }
            }
        }
    }

    fn step_of_pass(&mut self, cache: &Cache, mut pass: Pass, size: StepSize) -> Step {
        self.may_end_early = !is_limited(cache);
        let left = self.max_rows.unwrap_or(i64::MAX) - pass.removed;
        let most = size.rows.min(left);
        pass.set_reach(size.blocks);
        let step = (left > 0 && !pass.is_complete()).then(|| pass.step(cache, most));
        self.note(&pass);
        let removed = step.as_ref().map_or(0, |step| step.removed);
        self.expired += removed;
        self.stage = match pass.is_complete() || removed >= left {
            true => self.after_pass(cache, pass),
            false => Stage::Pass(pass),
        };
        Step {
            whole: removed >= most || removed == 0,
            worthwhile: step.is_some_and(|step| step.worthwhile),
        }
    }

    /// Stores the results of a pass. Runs under the lock on the table, so a change of the table's settings comes
    /// before or after the whole step.
    fn note(&self, pass: &Pass) {
        let Some(state) = self.state else {
            return;
        };
        pass.note(state);
        if let Some(changes) = self.changes.filter(|_| pass.is_complete()) {
            state.changes.store(changes, Relaxed);
        }
    }

    fn after_pass(&mut self, cache: &Cache, pass: Pass) -> Stage {
        if !self.trims || !is_limited(cache) {
            return Stage::Complete {
                excess: Excess::default(),
            };
        }
        match pass.is_complete() {
            true => self.after_count(cache, &pass),
            false => Stage::Count(pass),
        }
    }

    fn count(&mut self, cache: &Cache, mut pass: Pass) -> Step {
        pass.count_on(cache);
        self.stage = match pass.is_complete() {
            true => self.after_count(cache, &pass),
            false => Stage::Count(pass),
        };
        Step {
            whole: true,
            worthwhile: true,
        }
    }

    /// Chooses the next stage after all rows of the table are counted.
    fn after_count(&mut self, cache: &Cache, pass: &Pass) -> Stage {
        let excess = excess(cache, pass);
        let expired = pass.found - pass.removed;
        let wanted = match excess.bytes > 0 {
            true => expired,
            false => expired.min(excess.rows),
        };
        if self.max_rows.is_some() && wanted > 0 {
            return Stage::Leftover {
                pass: Pass::begin(cache, None),
                wanted,
                excess,
            };
        }
        self.trim(cache, excess)
    }

    fn expire_leftover(
        &mut self,
        cache: &Cache,
        mut pass: Pass,
        wanted: i64,
        excess: Excess,
    ) -> Step {
        if !pass.is_complete() {
            pass.step(cache, wanted - pass.removed);
        }
        self.stage = match pass.is_complete() || pass.removed >= wanted {
            true => self.trim(cache, excess.without(pass.removed, 0)),
            false => Stage::Leftover {
                pass,
                wanted,
                excess,
            },
        };
        Step {
            whole: true,
            worthwhile: true,
        }
    }

    fn trim(&mut self, cache: &Cache, excess: Excess) -> Stage {
        self.was_far_beyond |= excess.rows > tolerance(cache);
        trimming(Trim::begin(cache, excess, Spare::Used))
    }

    fn step_of_trim(&mut self, cache: &Cache, mut trim: Trim, size: StepSize) -> Step {
        let removed = trim.step(cache, size.rows);
        self.stage = match (trim.is_complete(), trim.spare()) {
            (false, _) => Stage::Trim(trim),
            (true, Spare::Used) => trimming(Trim::begin(cache, trim.excess(), Spare::None)),
            (true, Spare::None) => Stage::Complete {
                excess: trim.excess(),
            },
        };
        Step {
            whole: removed >= size.rows,
            worthwhile: true,
        }
    }
}

fn trimming(trim: Trim) -> Stage {
    match trim.is_complete() {
        true => Stage::Complete {
            excess: trim.excess(),
        },
        false => Stage::Trim(trim),
    }
}

/// Returns whether the cache has a limit, so that a sweep must count all rows.
fn is_limited(cache: &Cache) -> bool {
    cache.settings.max_entries.is_some() || cache.settings.max_bytes.is_some()
}

/// Returns the number of rows beyond `max_entries`, expired rows included, and the bytes of live rows beyond
/// `max_bytes`. Valid after a complete pass.
fn excess(cache: &Cache, pass: &Pass) -> Excess {
    let most = |limit: Option<i64>| limit.unwrap_or(i64::MAX);
    Excess {
        rows: (pass.rows().saturating_sub(most(cache.settings.max_entries))).max(0),
        bytes: pass.bytes_beyond(most(cache.settings.max_bytes)),
    }
}

/// Returns the number of rows beyond the limit that need no second sweep. If a sweep has to trim more rows than this,
/// writers may add as many while it runs.
fn tolerance(cache: &Cache) -> i64 {
    cache.settings.max_entries.unwrap_or(i64::MAX) / 100 + 1000
}
