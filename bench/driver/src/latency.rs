//! Latencies, counted by microsecond: the resolution of pgbench's log, so both sides are read alike.

const LIMIT: usize = 100_000; // anything slower is counted as 100 ms; `max` keeps the true value

pub struct Latency {
    counts: Vec<u32>,
    total: u64,
    sum_ns: u128,
    max_us: u64,
}

impl Latency {
    pub fn new() -> Self {
        Latency { counts: vec![0; LIMIT + 1], total: 0, sum_ns: 0, max_us: 0 }
    }

    pub fn add(&mut self, ns: u64) {
        let us = ns / 1000;
        self.counts[(us as usize).min(LIMIT)] += 1;
        self.total += 1;
        self.sum_ns += u128::from(ns);
        self.max_us = self.max_us.max(us);
    }

    pub fn merge(&mut self, other: &Latency) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.sum_ns += other.sum_ns;
        self.max_us = self.max_us.max(other.max_us);
    }

    pub fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / 1000.0 / self.total.max(1) as f64
    }

    /// `[[microseconds, count], ...]`, what the runner computes percentiles from.
    pub fn to_json(&self) -> String {
        let rows: Vec<String> = (self.counts.iter().enumerate())
            .filter(|(_, count)| **count > 0)
            .map(|(us, count)| format!("[{us},{count}]"))
            .collect();
        format!("[{}]", rows.join(","))
    }

    pub fn max_us(&self) -> u64 {
        self.max_us
    }
}

impl Default for Latency {
    fn default() -> Self {
        Latency::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_merge_and_slow_ones_are_kept_apart() {
        let (mut a, mut b) = (Latency::new(), Latency::new());
        a.add(1_500);
        b.add(1_999);
        b.add(200_000_000);
        a.merge(&b);
        assert_eq!(a.to_json(), "[[1,2],[100000,1]]");
        assert_eq!(a.max_us(), 200_000);
    }
}
