//! Synthetic request patterns on which eviction policies differ: loops, pools, moving and short-lived favourites.
//!
//! No pattern is a recording. Each is the simplest formula with one trait of recorded loads.

use super::traces::{Random, zipf};

/// Yields every key of `0..keys`, each `times` times in a row.
pub fn each(keys: u64, times: u64) -> impl Iterator<Item = u64> {
    (0..keys * times).map(move |turn| turn / times)
}

/// Yields all keys forwards, then backwards, and so on: when the direction changes, the key that was read last is read
/// next.
pub fn zigzag(keys: u64, length: usize) -> impl Iterator<Item = u64> {
    (0..length as u64).map(move |turn| {
        let step = turn % (2 * keys);
        step.min(2 * keys - 1 - step)
    })
}

/// Yields the requests of three programs that loop at the same time over 1, 2 and 4 sevenths of the keys, in slices of
/// `slice` requests.
pub fn multi(keys: u64, slice: u64, length: usize) -> impl Iterator<Item = u64> {
    let share = keys / 7;
    let pools = [(0, share), (share, 2 * share), (3 * share, 4 * share)];
    let mut places = [0u64; 3];
    (0..length as u64).map(move |turn| {
        let program = (turn / slice % 3) as usize;
        let (first, count) = pools[program];
        places[program] += 1;
        first + (places[program] - 1) % count
    })
}

/// Yields the reads of a user that has this many files open, reads them in random order, and replaces one of them at
/// every twelfth read on average. `skew` sets the preference for some files.
pub fn sessions(
    seed: u64,
    open: usize,
    keys: usize,
    skew: f64,
    length: usize,
) -> impl Iterator<Item = u64> {
    let mut random = Random::new(seed ^ 0xF11E);
    let mut files = zipf(seed, keys, skew, usize::MAX);
    let mut open: Vec<u64> = files.by_ref().take(open).collect();
    (0..length).map(move |_| {
        let at = random.below(open.len() as u64) as usize;
        if random.below(12) == 0 {
            open[at] = files.next().unwrap_or(0);
        }
        open[at]
    })
}

/// Yields zipf requests whose favourites shift by one key every `pace` requests.
pub fn drift(
    seed: u64,
    keys: usize,
    skew: f64,
    pace: u64,
    length: usize,
) -> impl Iterator<Item = u64> {
    zipf(seed, keys, skew, length)
        .zip(0u64..)
        .map(move |(key, turn)| key + turn / pace)
}

/// Yields requests over a stream of new keys; young keys are read most. A key's age has a tail like that of a Pareto
/// distribution, so some keys live long.
pub fn churn(seed: u64, pace: u64, young: f64, length: usize) -> impl Iterator<Item = u64> {
    let mut random = Random::new(seed);
    (0..length as u64).map(move |turn| {
        let age = ((1.0 - random.unit()).powf(-1.25) - 1.0) * young;
        (turn / pace).saturating_sub(age as u64)
    })
}

/// Yields zipf requests, and between any two of them a request for a key that comes five times in a row and never
/// again.
pub fn bursts(seed: u64, keys: usize, length: usize) -> impl Iterator<Item = u64> {
    zipf(seed, keys, 1.0, length)
        .zip(0u64..)
        .map(|(key, turn)| match turn % 2 {
            0 => (1 << 40) + turn / 10,
            _ => key,
        })
}
