//! Computes the commands per second that INFO shows, from samples of the counters of all network processes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time between two samples.
const STEP: Duration = Duration::from_millis(100);
/// The number of samples, as in Redis.
const SAMPLES: usize = 16;

/// The last samples. Each has its time, and the number of commands that had run before it.
#[derive(Default)]
pub struct Rate {
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Returns whether the next sample is due.
    pub fn is_due(&self, now: Instant) -> bool {
        let last = self.samples.back();
        last.is_none_or(|(last, _)| now.saturating_duration_since(*last) >= STEP)
    }

    /// Adds a sample.
    pub fn add(&mut self, now: Instant, commands: u64) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now, commands));
    }

    /// Returns the mean rate since the oldest sample that is at most 17 steps old. If the process slept and has only
    /// older samples, returns the mean rate since the newest sample.
    pub fn per_second(&self, now: Instant, commands: u64) -> u64 {
        let age = |taken: &Instant| now.saturating_duration_since(*taken);
        let window = STEP * (SAMPLES as u32 + 1);
        let recent = |(taken, _): &&(Instant, u64)| age(taken) <= window && age(taken) >= STEP;
        let from = self.samples.iter().find(recent);
        let from = from.or_else(|| {
            self.samples
                .iter()
                .rev()
                .find(|(taken, _)| age(taken) >= STEP)
        });
        from.map_or(0, |(taken, counted)| {
            let counted = commands.saturating_sub(*counted) as f64;
            (counted / age(taken).as_secs_f64()).round() as u64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(at(0), 7), 0);
        for step in 0..100 {
            assert!(rate.is_due(at(step * 100)));
            rate.add(at(step * 100), step * if step < 50 { 1 } else { 10 });
            assert!(!rate.is_due(at(step * 100 + 50)));
        }
        assert_eq!(rate.per_second(at(10_000), 1000), 100);
        // The process has slept for a long time.
        assert_eq!(rate.per_second(at(19_900), 1990), 100);
    }
}
