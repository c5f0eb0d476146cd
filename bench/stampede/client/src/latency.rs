//! Percentiles of all requests, in microseconds: sorted, not estimated.

/// The members of a JSON object.
pub fn summary(micros: &mut [u32]) -> String {
    micros.sort_unstable();
    let at = |share: f64| match micros.len() {
        0 => 0,
        n => micros[((n as f64 * share) as usize).min(n - 1)],
    };
    let sum: u64 = micros.iter().map(|&m| u64::from(m)).sum();
    let mean = sum as f64 / micros.len().max(1) as f64;
    format!("\"mean_us\":{mean:.1},\"p50_us\":{},\"p95_us\":{},\"p99_us\":{}", at(0.5), at(0.95), at(0.99))
}
