//! [`Limit`]: the time limit for saving or restoring entries, so that a restart is not delayed for long.

use std::io;
use std::time::{Duration, Instant};

/// The time limit. It is short, because a caller of `pg_ctl restart` waits during that time, and `pg_ctl` waits for at
/// most a minute.
const LONGEST: Duration = Duration::from_secs(10);

/// The time when saving or restoring began.
#[derive(Clone, Copy)]
pub struct Limit {
    began: Instant,
}

impl Limit {
    pub fn begin() -> Limit {
        Limit {
            began: Instant::now(),
        }
    }

    /// Returns an error once the time is over.
    pub fn check(self) -> io::Result<()> {
        match self.began.elapsed() < LONGEST {
            true => Ok(()),
            false => Err(io::Error::other("It took longer than 10 s.")),
        }
    }

    /// Returns the time since the beginning.
    pub fn milliseconds(self) -> u128 {
        self.began.elapsed().as_millis()
    }
}
