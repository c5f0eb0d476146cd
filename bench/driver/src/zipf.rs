//! Draws ranks from a Zipf distribution: the probability of rank r is proportional to 1 / r^0.99, the usual skew of
//! cache benchmarks.
//!
//! Uses rejection sampling under the integral of the weights, because this method is exact, needs no table, and takes
//! one or two draws for any number of entries.

use crate::random::Random;

const SKEW: f64 = 0.99;

#[derive(Clone, Copy)]
pub struct Zipf {
    entries: f64,
    low: f64,
    high: f64,
}

impl Zipf {
    pub fn new(entries: u64) -> Self {
        let entries = entries as f64;
        // The first rank gets its whole weight, not only the area under the curve.
        Zipf { entries, low: area(1.5) - 1.0, high: area(entries + 0.5) }
    }

    /// Draws a rank. Rank 0 is the most frequent.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let under = self.low + random.unit() * (self.high - self.low);
            let rank = inverse_area(under).round().clamp(1.0, self.entries);
            if under >= area(rank + 0.5) - rank.powf(-SKEW) {
                return rank as u64 - 1;
            }
        }
    }
}

fn area(x: f64) -> f64 {
    (x.powf(1.0 - SKEW) - 1.0) / (1.0 - SKEW)
}

fn inverse_area(y: f64) -> f64 {
    (1.0 + y * (1.0 - SKEW)).powf(1.0 / (1.0 - SKEW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_in_proportion_to_their_weight() {
        const ENTRIES: u64 = 1000;
        const DRAWS: usize = 200_000;
        let (zipf, mut random) = (Zipf::new(ENTRIES), Random(1));
        let mut counts = [0usize; ENTRIES as usize];
        (0..DRAWS).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
        let total: f64 = (1..=ENTRIES).map(|rank| (rank as f64).powf(-SKEW)).sum();
        for rank in [1, 2, 3, 10, 30] {
            let wanted = DRAWS as f64 * (rank as f64).powf(-SKEW) / total;
            let found = counts[rank - 1] as f64;
            assert!((found - wanted).abs() < 6.0 * wanted.sqrt(), "rank {rank}: {found}, not {wanted}");
        }
    }

    #[test]
    fn every_rank_can_come() {
        let (zipf, mut random) = (Zipf::new(4), Random(1));
        let mut seen = [false; 4];
        (0..1000).for_each(|_| seen[zipf.draw(&mut random) as usize] = true);
        assert_eq!(seen, [true; 4]);
    }
}
