//! Waits until another session has computed a value and released its lease, or until a pending commit is visible.
//! Every wait is limited, and a session that other sessions may wait for never waits.

use std::time::{Duration, Instant};

use super::acquire::Holder;
use super::held;
use crate::cache::tier::hashed_key::HashedKey;
use crate::pg::session::{self, advisory, clock, wait};
use crate::pg::shmem::tier::tier;

/// The longest uninterrupted sleep in milliseconds. After it, the session checks whether the lease's holder waits for
/// this session.
const LONGEST_SLEEP: i64 = 1_000;
/// The time that a fetch waits for a commit to become visible before it computes the value itself.
const COMMIT_TAKES: Duration = Duration::from_millis(10);

/// The time that a call may still wait, measured with a monotonic clock.
pub struct Patience {
    began: Instant,
    longest: Duration,
}

impl Patience {
    pub fn of(longest: Duration) -> Patience {
        let began = Instant::now();
        Patience { began, longest }
    }

    /// Returns the patience of a caller that waits for a commit in progress.
    pub fn for_a_commit() -> Patience {
        Patience::of(COMMIT_TAKES)
    }

    /// Returns the remaining time in microseconds.
    fn left(&self) -> i64 {
        let left = self.longest.saturating_sub(self.began.elapsed());
        left.as_micros().try_into().unwrap_or(i64::MAX)
    }
}

/// Sleeps briefly, so that a pending commit can become visible. Returns false without sleeping if a wait is pointless.
pub fn for_commit(patience: &Patience) -> bool {
    let waits = patience.left() > 0 && held::may_wait();
    if waits {
        wait::sleep(1);
    }
    waits
}

/// Waits for another session's lease to end: for at most one sleep, or, if a lock replaces the lease, for the rest of
/// the patience. Returns false if a further wait is pointless.
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
        return false; // without a tier no records exist
    };
    // A lease past its deadline can be taken over, but that gains nothing if the value is already written.
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
