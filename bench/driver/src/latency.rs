//! Collects latencies in a histogram with three significant digits.

use std::time::Duration;

use hdrhistogram::Histogram;

pub struct Latency(Histogram<u32>);

impl Default for Latency {
    fn default() -> Self {
        // The histogram grows with the recorded values. Three digits cannot fail, because the crate allows up to five.
        Latency(Histogram::new(3).expect("three digits are allowed"))
    }
}

impl Latency {
    pub fn add(&mut self, time: Duration) {
        let grown = self.0.record((time.as_nanos() as u64).max(1));
        grown.expect("a histogram that grows takes any time");
    }

    pub fn merge(&mut self, other: &Latency) {
        self.0.add(&other.0).expect("a histogram that grows takes any other");
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the quantiles as members of a JSON object.
    pub fn figures(&self) -> String {
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |share| if self.0.is_empty() { 0.0 } else { us(self.0.value_at_quantile(share)) };
        format!(
            "\"mean_us\":{:.3},\"p50_us\":{:.1},\"p95_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1}",
            self.0.mean() / 1000.0,
            at(0.50),
            at(0.95),
            at(0.99),
            us(self.0.max())
        )
    }

    /// Returns `[[microseconds, count], ...]`, for the raw results.
    pub fn histogram(&self) -> String {
        let mut rows: Vec<(u64, u64)> = Vec::new();
        for bucket in self.0.iter_recorded() {
            let (us, count) = (bucket.value_iterated_to() / 1000, bucket.count_at_value().into());
            match rows.last_mut() {
                Some(last) if last.0 == us => last.1 += count,
                _ => rows.push((us, count)),
            }
        }
        let rows: Vec<String> = rows.iter().map(|(us, count)| format!("[{us},{count}]")).collect();
        format!("[{}]", rows.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_merge_by_microsecond_and_slow_ones_keep_their_time() {
        let (mut a, mut b) = (Latency::default(), Latency::default());
        a.add(Duration::from_nanos(1_500));
        b.add(Duration::from_nanos(1_900));
        b.add(Duration::from_secs(2));
        a.merge(&b);
        assert_eq!(a.count(), 3);
        assert!(a.histogram().starts_with("[[1,2],["), "{}", a.histogram());
        assert!(a.figures().contains("\"p50_us\":1.9,"), "{}", a.figures());
    }

    #[test]
    fn nothing_recorded_is_no_error() {
        assert!(Latency::default().figures().contains("\"p99_us\":0.0,\"max_us\":0.0"));
    }
}
