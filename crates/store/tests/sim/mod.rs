//! Textbook caches and traces to compare the store with, and the store behind the same interface.
//!
//! All caches get the same requests and the same number of bytes; only the store pays for its bookkeeping out of these
//! bytes. The textbook caches are simulations and not fast.
#![allow(dead_code)]

pub mod file;
pub mod mortal;
pub mod patterns;
pub mod policies;
pub mod simulated_store;
pub mod traces;

/// A cache that receives a request for a key and, on a miss, stores its entry.
pub trait Cache {
    /// Returns true for a hit. On a miss, stores an entry of `size` bytes, key included.
    fn request(&mut self, key: u64, size: usize) -> bool;

    /// Sets the time of the next request, and the deadline of the entry that it stores. Caches without a clock
    /// ignore both.
    fn at(&mut self, _now: i64, _deadline: i64) {}

    /// Stores the entry, whether or not the key has one. Caches that keep only sizes treat this as a request.
    fn store(&mut self, key: u64, size: usize) {
        self.request(key, size);
    }

    /// Removes the entry. Caches without a clock keep it until they evict it.
    fn remove(&mut self, _key: u64) {}
}

/// Returns the hit rate of a trace in percent, after `warm_up` requests that are not counted.
pub fn hit_rate(
    cache: &mut dyn Cache,
    warm_up: usize,
    trace: impl Iterator<Item = u64>,
    size: impl Fn(u64) -> usize,
) -> f64 {
    let (mut hits, mut total) = (0u64, 0u64);
    for (turn, key) in trace.enumerate() {
        let hit = cache.request(key, size(key));
        if turn >= warm_up {
            total += 1;
            hits += u64::from(hit);
        }
    }
    100.0 * hits as f64 / total as f64
}

/// Runs passes of four gets for each key over values of one size, with four times the data that fit in the tier.
/// Returns the hit rate of the last pass. Keys are numbered from `base` on. Each pass takes its seed from the range.
pub fn passes(
    cache: &mut dyn Cache,
    size: usize,
    value: usize,
    seeds: std::ops::Range<u64>,
    base: u64,
) -> f64 {
    let keys = (4 * size / value) as u64;
    seeds
        .map(|seed| {
            let trace = traces::hot_and_cold(seed, keys, 4 * keys as usize).map(|key| key + base);
            hit_rate(cache, 0, trace, |_| simulated_store::KEY_BYTES + value)
        })
        .last()
        .unwrap_or_default()
}
