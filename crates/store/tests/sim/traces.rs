//! Synthetic traces: zipf, scan, loop, and the two-class load of the memory-limit workload.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Yields key `i` of `keys` with the weight 1 / (i + 1)^skew.
pub fn zipf(seed: u64, keys: usize, skew: f64, length: usize) -> impl Iterator<Item = u64> {
    let mut sums = Vec::with_capacity(keys);
    let mut sum = 0.0;
    for i in 0..keys {
        sum += 1.0 / ((i + 1) as f64).powf(skew);
        sums.push(sum);
    }
    let mut random = Random::new(seed);
    (0..length).map(move |_| {
        let at = random.unit() * sum;
        sums.partition_point(|s| *s < at) as u64
    })
}

/// Yields requests for a hot set, interrupted by scans of new keys.
pub fn zipf_with_scans(seed: u64, keys: usize, length: usize) -> impl Iterator<Item = u64> {
    let mut fresh = 1 << 40;
    zipf(seed, keys, 1.0, length)
        .enumerate()
        .map(move |(turn, key)| {
            // A third of all requests are scans, in bursts as long as a tenth of the key space.
            if turn / (keys / 10) % 3 == 2 {
                fresh += 1;
                return fresh;
            }
            key
        })
}

/// Yields all keys in order, again and again.
pub fn looping(keys: u64, length: usize) -> impl Iterator<Item = u64> {
    (0..length as u64).map(move |turn| turn % keys)
}

/// Yields requests in which 20 % of the keys get 80 % of the requests.
pub fn hot_and_cold(seed: u64, keys: u64, length: usize) -> impl Iterator<Item = u64> {
    let mut random = Random::new(seed);
    let hot = keys / 5;
    (0..length).map(move |_| match random.below(5) {
        0 => hot + random.below(keys - hot),
        _ => random.below(hot),
    })
}
