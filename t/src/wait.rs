//! Waits for a state, never for a fixed time, so that a test does not fail on a busy machine.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time after which a wait fails.
pub const PATIENCE: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Waits until `holds` returns true. `what` names the state for the message of a failure.
#[track_caller]
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_until_within(PATIENCE, what, holds);
}

/// Waits like [`wait_until`], but at most for `longest`.
#[track_caller]
pub fn wait_until_within(longest: Duration, what: &str, holds: impl FnMut() -> bool) {
    assert!(is_so_within(longest, holds), "in vain: {what}");
}

/// Waits until `holds` returns true, but at most for `longest`. Returns whether `holds` returned true in time.
pub fn is_so_within(longest: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + longest;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(BETWEEN_LOOKS);
    }
}

/// Waits until `probe` returns a result, and returns the result.
#[track_caller]
pub fn wait_for<R>(what: &str, mut probe: impl FnMut() -> Option<R>) -> R {
    let mut answer = None;
    wait_until(what, || {
        answer = probe();
        answer.is_some()
    });
    answer.expect("it was waited for")
}
