//! Adapts the size of a sweep step to each cache, so that a step lasts about a second and the other caches of the
//! database get their turns.
//!
//! Triggers on a cache, and functions in its policies, are the code of its owner, and may be slow for each removed or
//! checked row. In that case a step processes fewer rows. If a smaller step takes just as long, the cost is per
//! statement, and steps return to their full size.
//!
//! The byte `SweepState::pace` holds the size: the number of halvings, or a value that says that halving does not help.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::cache::expiry::pass::CHUNK;
use crate::guc;
use crate::pg::shmem::worker_state::SweepState;

/// A step that takes longer than this counts as long, because it makes the other caches wait.
pub const LONG: Duration = Duration::from_secs(1);

/// The largest number of halvings. It reduces even the largest `pgcache.expire_batch` to one row.
const MOST: u8 = 14;
/// Values from this one up mean that halving did not help. Each further long step adds 1. After 255 the byte wraps to
/// 0, and halving is tried again.
const OF_NO_USE: u8 = 0xF0;
/// The number of halvings added after the launcher ended a step. The step's full duration is unknown, so the size falls
/// sharply.
const ENDED: u8 = 4;

fn halvings(state: &SweepState) -> u8 {
    match state.pace.load(Relaxed) {
        number if number >= OF_NO_USE => 0,
        number => number.min(MOST),
    }
}

/// Returns the number of rows that a step may remove.
pub fn rows(state: &SweepState) -> i64 {
    (guc::expire_batch() >> halvings(state)).max(1)
}

/// Returns the number of blocks that a step reads.
pub fn blocks(state: &SweepState) -> u32 {
    (CHUNK >> halvings(state)).max(1)
}

/// Adapts the size to a step that took the time `took`. `whole` is true if the step used its whole row budget.
pub fn learn(state: &SweepState, took: Duration, whole: bool) {
    let before = state.pace.load(Relaxed);
    state.pace.store(after(before, took, whole), Relaxed);
}

/// Adapts the size to a step that the launcher has ended.
pub fn learn_end(state: &SweepState) {
    let fewer = (halvings(state) + ENDED).min(MOST);
    state.pace.store(fewer, Relaxed);
}

fn after(before: u8, took: Duration, whole: bool) -> u8 {
    let is_long = took > LONG;
    if before >= OF_NO_USE {
        return match is_long {
            true => before.checked_add(1).unwrap_or(0),
            false => before,
        };
    }
    match is_long {
        // A step that was already made smaller still takes several seconds, so halving does not help.
        true if before > 0 && took > LONG * 4 => OF_NO_USE,
        true => (before + doublings(took)).min(MOST),
        false if whole && took * 4 < LONG => before.saturating_sub(1),
        false => before,
    }
}

/// Returns how often `LONG` must be doubled to reach this time, rounded up.
fn doublings(took: Duration) -> u8 {
    let times = took.as_millis().div_ceil(LONG.as_millis()).max(1);
    u8::try_from(times.next_power_of_two().trailing_zeros()).unwrap_or(MOST)
}
