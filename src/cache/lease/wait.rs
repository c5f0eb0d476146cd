//! Waiting for what another session computes, or commits.

use std::time::{Duration, Instant};

use super::ask::Holder;
use super::held;
use crate::cache::tier::hashed_key::HashedKey;
use crate::pg::session::{self, advisory, clock, wait};
use crate::pg::shmem::tier::tier;

/// Milliseconds of the longest sleep at a stretch: then it is asked whether the holder waits for
/// us.
const LONGEST_SLEEP: i64 = 1_000;
/// How long a fetch waits for a commit that does not become visible before it computes for itself.
const COMMIT_TAKES: Duration = Duration::from_millis(10);

/// How long a call still waits, by a clock that nobody sets.
pub struct Patience {
    began: Instant,
    longest: Duration,
}

impl Patience {
    pub fn of(longest: Duration) -> Patience {
        let began = Instant::now();
        Patience { began, longest }
    }

    /// For a commit that is under way.
    pub fn for_a_commit() -> Patience {
        Patience::of(COMMIT_TAKES)
    }

    /// What is left of it, in microseconds.
    fn left(&self) -> i64 {
        let left = self.longest.saturating_sub(self.began.elapsed());
        left.as_micros().try_into().unwrap_or(i64::MAX)
    }
}

/// Waits a moment for a commit to become visible; false when there is no point in more waiting.
pub fn for_commit(patience: &Patience) -> bool {
    let waits = patience.left() > 0 && held::may_wait();
    if waits {
        wait::sleep(1);
    }
    waits
}

/// Waits a while for the end of somebody else's lease; false when there is no point in more
/// waiting.
pub fn for_lease(key: HashedKey, holder: Holder, patience: &Patience) -> bool {
    let left = patience.left();
    if left == 0 || !held::may_wait() {
        return false;
    }
    let other = match holder {
        Holder::Record(other) => other,
        Holder::Lock(name) => {
            return advisory::wait_for_lease(name, Duration::from_micros(left.unsigned_abs()));
        }
    };
    let Some(tier) = tier() else {
        return false; // no tier, no records
    };
    // Past its deadline a lease is taken over; if its value is written already, nothing is gained.
    let now = clock::now();
    if other.stored && other.deadline <= now {
        return false;
    }
    let hash = key.hash;
    let partition = tier.region().partition_of(hash);
    let micros = left.min(other.deadline.max(now) - now);
    let millis = (micros / 1000 + 1).min(LONGEST_SLEEP);
    let asleep = Instant::now();
    tier.leases().sleep(partition, millis, || {
        let present = tier.read(hash, |_| tier.leases().of(partition).present(hash));
        present.is_some_and(|present| present.id == other.id)
    });
    session::check_for_interrupts();
    let overslept = asleep.elapsed() >= Duration::from_millis(LONGEST_SLEEP as u64);
    !(overslept && other.holder != 0 && wait::waits_for_us(other.holder))
}
